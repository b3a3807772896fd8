package version_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"github.com/clusterpolicy/gpu-operator/internal/names/version"
)

func TestSupportedVersionsOfKubernetes(t *testing.T) {
	const older = " is not supported: upgrade the cluster to 1.32 or newer"
	const newer = " is newer than this release has been tested on, 1.32 to 1.37"
	tests := map[string]struct{ message, err string }{
		"v1.32.0":            {},
		"v1.34.2":            {},
		"1.34":               {},
		"v1.37.9":            {},
		"v1.37.1+k3s1":       {},
		"v1.33.4-gke.124500": {},
		"v1.31.14":           {message: "Kubernetes v1.31.14" + older},
		"v1.38.0-alpha.1":    {message: "Kubernetes v1.38.0-alpha.1" + newer},
		"v2.34.0":            {message: "Kubernetes v2.34.0" + newer},
		"":                   {err: `"" is no version of Kubernetes: give one such as v1.37.0`},
		"newest":             {err: `"newest" is no version of Kubernetes: give one such as v1.37.0`},
		"1":                  {err: `"1" is no version of Kubernetes: give one such as v1.37.0`},
	}
	for server, test := range tests {
		t.Run(server, func(t *testing.T) {
			g := NewWithT(t)
			message, err := version.OutOfRange(server)
			g.Expect(message).To(Equal(test.message))
			if test.err != "" {
				g.Expect(err).To(MatchError(test.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

func TestMinor(t *testing.T) {
	NewWithT(t).Expect(version.Minor("1.36")).To(Equal(36))
}

// Only released versions have a tag. What git describe prints for others is none.
func TestAddressesOfARelease(t *testing.T) {
	for release, revision := range map[string]string{
		"v1.2.3": "v1.2.3", "1.2.3": "v1.2.3", "v1.2.30-rc.1": "v1.2.30-rc.1", "v1.2.3-alpha": "v1.2.3-alpha",
		"v1.2.3-beta2": "v1.2.3-beta2", "": "main", "dev": "main", "v1.2": "main", "v1.2.3-5-g1234567": "main",
		"v1.2.3-rc.1-5-g1234567": "main", "v1.2.3-dirty": "main",
	} {
		NewWithT(t).Expect(version.AdmissionManifest(release)).To(Equal(
			"https://raw.githubusercontent.com/clusterpolicy/gpu-operator/"+revision+"/bundle/admission.yaml"), release)
		NewWithT(t).Expect(version.Runbooks(release)).To(Equal(
			"https://github.com/clusterpolicy/gpu-operator/blob/"+revision+"/docs/troubleshooting.md"), release)
	}
}

// The supported range is the one that the tests run on, and the one in the README.
func TestSupportedRangeIsTested(t *testing.T) {
	g := NewWithT(t)
	const root = "../../.."
	for folder, want := range map[string]string{"oldest": version.OldestKubernetes, "next": version.NewestKubernetes} {
		path := filepath.Join(root, "test", "controlplane", folder, "go.mod")
		text, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		module, err := modfile.ParseLax(path, text, nil)
		g.Expect(err).NotTo(HaveOccurred())
		pinned := ""
		for _, require := range module.Require {
			if require.Mod.Path == "k8s.io/kubernetes" {
				pinned = require.Mod.Version
			}
		}
		g.Expect(semver.MajorMinor(pinned)).To(Equal("v"+want), path)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(readme)).
		To(ContainSubstring("- Kubernetes " + version.OldestKubernetes + " to " + version.NewestKubernetes + "."))
}
