package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/mod/semver"

	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
)

// safest are the first releases of the driver's branches for data centres that have the fixes of NVIDIA's security
// bulletins 5747, 5821 and 5861, as of 30 September 2026. The branches 570 and 590 got none of the last two.
var safest = map[string]string{
	"535": "535.309.01", "580": "580.178.04", "595": "595.91.07", "610": "610.57.04", "615": "615.71.09",
}

// driverVersion is a complete version of the driver where a user would copy it: in a policy, or in an image.
var driverVersion = regexp.MustCompile(`(?:version: "?|/driver:)([0-9]{3}[.][0-9]+[.][0-9]+)`)

// Users copy what docs and samples show, so that no driver there has known vulnerabilities. Neither has the default.
func TestDriversInSamplesAndDocsAreSafe(t *testing.T) {
	g := NewWithT(t)
	texts, found := map[string]string{}, 0
	for _, p := range pages(t) {
		texts[p.path] = p.text
	}
	samples, err := filepath.Glob(filepath.Join(repo, "config/samples/*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, path := range samples {
		text, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		texts[path] = string(text)
	}
	catalogue, err := operands.Catalogue()
	g.Expect(err).NotTo(HaveOccurred())
	for _, image := range catalogue.Images() {
		if image.Name == "driver" {
			texts["the default image"] = "/" + image.Image + ":" + image.Version
		}
	}
	for path, text := range texts {
		for _, match := range driverVersion.FindAllStringSubmatch(text, -1) {
			branch, _, _ := strings.Cut(match[1], ".")
			g.Expect(safest).To(HaveKey(branch), "%s: driver %s is of a branch without fixes", path, match[1])
			g.Expect(semver.Compare(semantic(match[1]), semantic(safest[branch]))).To(BeNumerically(">=", 0),
				"%s: driver %s is below %s", path, match[1], safest[branch])
			found++
		}
	}
	g.Expect(texts).To(HaveKey("the default image"))
	g.Expect(found).To(BeNumerically(">=", 5))
}

// semantic returns a version of the driver as a semantic version, which has no leading zeros.
func semantic(version string) string {
	return "v" + regexp.MustCompile(`[.]0+([0-9])`).ReplaceAllString(version, ".$1")
}
