package install

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

var (
	helmLine   = regexp.MustCompile("\\bhelm (?:install|upgrade|template)\\b[^`\n]*")
	assignment = regexp.MustCompile(`--set[ =]([^\s,]+=[^\s]+)`)
)

// helmLines returns the values that each command of Helm in a text sets, if it sets any. A line that ends with a
// backslash is one with the next.
func helmLines(text string) (found [][]string) {
	for _, line := range helmLine.FindAllString(strings.ReplaceAll(text, "\\\n", " "), -1) {
		var values []string
		for _, set := range assignment.FindAllStringSubmatch(line, -1) {
			values = append(values, set[1])
		}
		if len(values) > 0 {
			found = append(found, values)
		}
	}
	return found
}

func TestHelmLinesAreFound(t *testing.T) {
	g := NewWithT(t)
	g.Expect(helmLines("`helm install ... --set a.b=true`, `--set c=1`\n```\nhelm upgrade x y \\\n" +
		"  --set d=1,e=2 --set f=g\nhelm uninstall x --set no=1\n```\nhelm template\n")).
		To(Equal([][]string{{"a.b=true"}, {"d=1,e=2", "f=g"}}))
}

// The chart accepts what the commands on the pages set, and makes a policy without unknown fields of it.
func TestTheChartAcceptsTheValuesOnPages(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	g := NewWithT(t)
	var all [][]string
	g.Expect(filepath.WalkDir(repo+"/docs", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".md") || strings.HasSuffix(path, "CHANGELOG.md") {
			return err
		}
		text, err := os.ReadFile(path)
		all = append(all, helmLines(string(text))...)
		return err
	})).To(Succeed())
	slices.SortFunc(all, slices.Compare[[]string])
	all = slices.CompactFunc(all, slices.Equal[[]string])
	g.Expect(len(all)).To(BeNumerically(">", 5), "commands; the search has lost its way")
	for _, values := range all {
		flags := []string{"--set", "operator.repository=registry.example.com"}
		for _, value := range values {
			flags = append(flags, "--set", value)
		}
		text, err := render(t, flags...)
		g.Expect(err).NotTo(HaveOccurred(), "%v", values)
		objects, err := packaged.Decode(text)
		g.Expect(err).NotTo(HaveOccurred(), "%v", values)
		if find(objects, "ClusterPolicy", "cluster-policy") != nil {
			policyOf(g, objects)
		}
	}
}
