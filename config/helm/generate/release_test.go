package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestInvalidReleasesAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		release release
		want    string
	}{
		"no version":    {release{image: "a.b/c:d"}, `-version "" is not a semantic version`},
		"a v":           {release{version: "v1.2.3", image: "a.b/c:d"}, "give one such as 1.2.3"},
		"no image":      {release{version: "1.2.3"}, "-image is not set"},
		"no tag":        {release{version: "1.2.3", image: "a.b:5000/c"}, `-image "a.b:5000/c" is incomplete`},
		"no repository": {release{version: "1.2.3", image: "c:d"}, `-image "c:d" is incomplete`},
	} {
		t.Run(name, func(t *testing.T) {
			g, out := NewWithT(t), filepath.Join(t.TempDir(), "chart")
			g.Expect(run(root, out, test.release)).To(MatchError(ContainSubstring(test.want)))
			g.Expect(out).NotTo(BeADirectory())
		})
	}
}

func TestTheImageOfARelease(t *testing.T) {
	for image, want := range map[string]reference{
		"a.b/c:d":                   {"a.b", "c", "d"},
		"a.b:5000/x/c:d":            {"a.b:5000/x", "c", "d"},
		"a.b:5000/x/c@sha256:abc":   {"a.b:5000/x", "c", "sha256:abc"},
		"a.b/x/c:d@sha256:abc":      {"a.b/x", "c", "sha256:abc"},
		"a.b:5000/x/c:d@sha256:abc": {"a.b:5000/x", "c", "sha256:abc"},
	} {
		NewWithT(t).Expect(release{image: image}.reference()).To(Equal(want), image)
	}
}

// What the chart of a release says about itself is about the release.
func TestTheChartOfARelease(t *testing.T) {
	g, out := NewWithT(t), filepath.Join(t.TempDir(), "chart")
	r := release{version: "1.2.3", image: "a.b/gpu/gpu-operator@sha256:abc", source: "oci://a.b/charts/gpu-operator"}
	g.Expect(run(root, out, r)).To(Succeed())
	text := func(name string) string {
		content, err := os.ReadFile(filepath.Join(out, name))
		g.Expect(err).NotTo(HaveOccurred())
		return string(content)
	}
	g.Expect(text("Chart.yaml")).To(And(
		ContainSubstring("\nversion: 1.2.3\n"), ContainSubstring("\nappVersion: v1.2.3\n")))
	g.Expect(text("files/monitoring/alerts.yaml")).To(And(
		ContainSubstring("/blob/v1.2.3/docs/troubleshooting.md#gpuunhealthy\n"), Not(ContainSubstring("/main/"))))
	g.Expect(text("values.yaml")).To(And(ContainSubstring(`repository: "a.b/gpu"`),
		ContainSubstring("Registry and path of the operator's image (default \"a.b/gpu\")\n")))
	g.Expect(text("README.md")).To(And(
		ContainSubstring("helm install gpu-operator oci://a.b/charts/gpu-operator --namespace"),
		ContainSubstring("helm upgrade gpu-operator oci://a.b/charts/gpu-operator --namespace"),
		ContainSubstring("--timeout 10m \\\n  --set driver.enabled=false\n"),
		ContainSubstring("--timeout 10m\n```"), ContainSubstring("  --reset-then-reuse-values\n```"),
		ContainSubstring("](https://github.com/clusterpolicy/gpu-operator/blob/v1.2.3/docs/install.md)"),
		Not(ContainSubstring("--set operator.repository=")), Not(ContainSubstring("](../"))))
	g.Expect(filepath.Join(out, "templates/_helpers.tpl")).To(BeARegularFile())
}
