package viewer_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/viewer"
)

// Each resource is once in the sum, with the verbs of all commands.
func TestAll(t *testing.T) {
	g, seen := NewWithT(t), map[string]viewer.Right{}
	var last viewer.Right
	for _, right := range viewer.All() {
		key := right.Group + "/" + right.Resource + "/" + right.Name
		g.Expect(seen).NotTo(HaveKey(key))
		g.Expect(last.Group <= right.Group).To(BeTrue(), "sorted by group")
		g.Expect(last.Group < right.Group || last.Resource < right.Resource).To(BeTrue(), "then by resource")
		seen[key], last = right, right
	}
	g.Expect(seen["/nodes/"].Verbs).To(Equal([]string{"list", "watch"}))
	g.Expect(seen["/services/"].Verbs).To(Equal([]string{"list"}))
	g.Expect(seen["image.openshift.io/imagestreams/driver-toolkit"].Verbs).To(Equal([]string{"get"}))
	for _, command := range viewer.Commands() {
		for _, right := range viewer.Of(command) {
			if right.Resource == viewer.Proxied {
				continue
			}
			key := right.Group + "/" + right.Resource + "/" + right.Name
			g.Expect(seen[key].Verbs).To(ContainElements(right.Verbs), command)
		}
	}
	g.Expect(seen).NotTo(HaveKey("/pods/proxy/"))
	g.Expect(viewer.Of("cleanup")).To(BeNil())
	g.Expect(viewer.Of("status")).To(HaveLen(3))
}
