package migrationsteps

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
)

// writtenBy adds an entry of metadata.managedFields with these fields.
func writtenBy(o *unstructured.Unstructured, manager, operation, fields string) *unstructured.Unstructured {
	o.SetManagedFields(append(o.GetManagedFields(), metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationType(operation), APIVersion: o.GetAPIVersion(),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}))
	return o
}

const layoutField = `{"f:metadata":{"f:labels":{"f:nvidia.com/mig.config":{}}}}`

// layoutNode returns a Node with a MIG layout.
func layoutNode(name, layout string) *unstructured.Unstructured {
	node := object("Node", name, "")
	node.SetNamespace("")
	node.SetLabels(map[string]string{"nvidia.com/mig.config": layout})
	return writtenBy(node, "kubelet", "Update", `{"f:metadata":{"f:labels":{"f:kubernetes.io/arch":{}}}}`)
}

// The MIG layouts that NVIDIA's operator has set are recorded, once, and no others.
func TestRecordLayouts(t *testing.T) {
	g := NewWithT(t)
	recorded := writtenBy(layoutNode("recorded", "all-disabled"), "gpu-operator", "Update", layoutField)
	recorded.SetAnnotations(map[string]string{"nvidia.com/gpu-operator.mig-config": "all-disabled"})
	c := Cluster{Objects: []*unstructured.Unstructured{
		writtenBy(layoutNode("theirs-2", "all-disabled"), "gpu-operator", "Update", layoutField),
		writtenBy(layoutNode("theirs-1", "all-disabled"), "gpu-operator", "Update", layoutField),
		writtenBy(layoutNode("typed", "all-disabled"), "kubectl-label", "Update", layoutField),
		writtenBy(layoutNode("other-layout", "all-1g.10gb"), "gpu-operator", "Update", layoutField),
		writtenBy(layoutNode("applied", "all-disabled"), "gpu-operator", "Apply", layoutField),
		writtenBy(writtenBy(layoutNode("shared", "all-disabled"), "gpu-operator", "Update", layoutField), "argocd", "Apply",
			layoutField),
		layoutNode("unknown", "all-disabled"), recorded,
	}}
	steps := c.Stop()
	g.Expect(steps).To(HaveLen(1))
	g.Expect(steps[0].Action).To(Equal(ActionRecordLayout))
	g.Expect(steps[0].Nodes).To(Equal([]string{"theirs-1", "theirs-2"}))
}

// With this operator installed, roles of NVIDIA's operator that no installer has taken are deleted.
func TestUnclaimedRoles(t *testing.T) {
	rules := `{"f:rules":{}}`
	role := func() *unstructured.Unstructured {
		return writtenBy(object("Role", "nvidia-mig-manager", ""), "gpu-operator", "Update", rules)
	}
	helm := role()
	helm.SetAnnotations(map[string]string{releaseName: "ours", releaseNamespace: "nvidia"})
	account := writtenBy(object("ServiceAccount", "nvidia-mig-manager", ""), "gpu-operator", "Update", rules)
	tests := map[string]struct {
		role *unstructured.Unstructured
		want bool
	}{
		"as NVIDIA's operator wrote it": {role(), true},
		"made independent of the policy": {
			writtenBy(role(), "kubectl-patch", "Update", `{"f:metadata":{"f:ownerReferences":{}}}`), true,
		},
		"of a release":               {helm, false},
		"taken with kubectl apply":   {writtenBy(role(), "kubectl-client-side-apply", "Update", rules), false},
		"with a label of an install": {writtenBy(role(), "kustomize", "Apply", `{"f:metadata":{"f:labels":{}}}`), false},
		"of another writer":          {writtenBy(object("Role", "nvidia-mig-manager", ""), "olm", "Update", rules), false},
		"without managers":           {object("Role", "nvidia-mig-manager", ""), false},
		"another name":               {writtenBy(object("Role", "of-others", ""), "gpu-operator", "Update", rules), false},
		"an account, which pods use": {account, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := Cluster{Objects: []*unstructured.Unstructured{test.role}}
			g.Expect(c.Finish()).To(BeEmpty(), "an installer of this operator may still take it")
			c.Objects = append(c.Objects, deployment(preview.OwnVariable))
			if !test.want {
				g.Expect(c.Finish()).To(BeEmpty())
				return
			}
			g.Expect(texts(c.Finish())).To(Equal([]string{"delete Role nvidia/nvidia-mig-manager"}))
		})
	}
}
