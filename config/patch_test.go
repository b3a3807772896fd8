package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/config"
)

// The documented patch for more start-up taints applies to the admission policy.
func TestDocumentedPatchApplies(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../docs/install.md")
	g.Expect(err).NotTo(HaveOccurred())
	patch := regexp.MustCompile("(?s)```yaml\n(patches:.*?)```").FindSubmatch(text)
	g.Expect(patch).NotTo(BeNil(), "docs/install.md has the patch")
	here, err := filepath.Abs(".")
	g.Expect(err).NotTo(HaveOccurred())
	overlay := t.TempDir()
	base, err := filepath.Rel(overlay, filepath.Join(here, "admission"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte("resources: ["+base+"]\n"+string(patch[1])),
		0o600)).To(Succeed())
	objects, err := config.Build(overlay)
	g.Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		if object.GetKind() == "ValidatingAdmissionPolicy" && object.GetName() == "gpu-operator-operator" {
			spec, isMap := object.Object["spec"].(map[string]any)
			g.Expect(isMap).To(BeTrue())
			g.Expect(spec["variables"]).To(ContainElement(map[string]any{
				"name": "ownTaints", "expression": "['nvidia.com/gpu-operator.not-ready', " +
					"'nvidia.com/gpu-operator.unhealthy', 'example.com/gpu-starting']",
			}))
			return
		}
	}
	t.Error("config/admission has no policy gpu-operator-operator")
}

// The documented overlay sets the image of the operator, and of the operands' helper containers.
func TestDocumentedOverlaySetsTheImage(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../docs/install.md")
	g.Expect(err).NotTo(HaveOccurred())
	found := regexp.MustCompile("(?s)```yaml\n(resources: \\[../gpu-operator/config/default\\]\n.*?)```").
		FindSubmatch(text)
	g.Expect(found).NotTo(BeNil(), "docs/install.md has the overlay")
	here, err := filepath.Abs(".")
	g.Expect(err).NotTo(HaveOccurred())
	dir := t.TempDir()
	base, err := filepath.Rel(dir, filepath.Join(here, "default"))
	g.Expect(err).NotTo(HaveOccurred())
	overlay := strings.Replace(string(found[1]), "../gpu-operator/config/default", base, 1)
	g.Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600)).To(Succeed())
	replacement, err := os.ReadFile("manager/operator_image.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(dir, "operator_image.yaml"), replacement, 0o600)).To(Succeed())
	objects, err := config.Build(dir)
	g.Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			encoded, err := object.MarshalJSON()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(strings.Count(string(encoded), `"registry.example.com/gpu-operator:dev"`)).To(Equal(2))
			g.Expect(string(encoded)).NotTo(ContainSubstring("IMAGE-NOT-SET"))
			return
		}
	}
	t.Error("config/default has no Deployment")
}
