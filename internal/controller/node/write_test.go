package node

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// A patch that cannot be encoded is an error, and nothing is sent.
func TestPatchThatCannotBeEncoded(t *testing.T) {
	g := NewWithT(t)
	content, err := lazyPatch{types.MergePatchType, map[string]any{"metadata": map[string]any{"labels": nil}}}.Data(nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(content).To(MatchJSON(`{"metadata": {"labels": null}}`))
	_, err = lazyPatch{types.MergePatchType, map[string]any{"metadata": make(chan int)}}.Data(nil)
	g.Expect(err).To(MatchError(ContainSubstring("unsupported type")))
}

// A write has only what changes, for the version that was read. Its answer is what the reconcile goes on with.
func TestWritesOfANode(t *testing.T) {
	key := map[string]*string{"example.com/x": new("y")}
	for name, test := range map[string]struct {
		labels, annotations map[string]*string
		stale               bool
		writes              int
	}{
		"nothing": {}, "a label": {labels: key, writes: 1}, "an annotation": {annotations: key, writes: 1},
		"both": {labels: key, annotations: key, writes: 1}, "a label of a stale node": {labels: key, stale: true, writes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			s := e.scope(func(*scope) {})
			if test.stale {
				e.updateNode(func(node *corev1.Node) { node.Labels["example.com/other"] = "x" })
			}
			err := s.patchMetadata(t.Context(), test.labels, test.annotations)
			e.Expect(e.writes).To(Equal(test.writes))
			if test.stale {
				e.Expect(err).To(And(MatchError(HavePrefix("patching labels of node a: ")), Satisfy(apierrors.IsConflict)))
				e.Expect(s.entry.Writes.Version).To(BeEmpty())
				return
			}
			e.Expect(err).NotTo(HaveOccurred())
			if test.writes == 0 {
				return
			}
			written := e.node()
			for _, part := range []struct {
				has    map[string]string
				change map[string]*string
			}{{written.Labels, test.labels}, {written.Annotations, test.annotations}} {
				if part.change == nil {
					e.Expect(part.has).NotTo(HaveKey("example.com/x"))
				} else {
					e.Expect(part.has).To(HaveKeyWithValue("example.com/x", "y"))
				}
			}
			e.Expect(s.node.ResourceVersion).To(Equal(written.ResourceVersion))
			e.Expect(s.entry.Writes.Version).To(Equal(written.ResourceVersion))
			e.Expect(s.isStale()).To(BeFalse())
		})
	}
	e := newEnv(t)
	e.Expect(e.scope(func(*scope) {}).deleteConditions(t.Context())).To(Succeed())
	e.Expect(e.writes).To(BeZero(), "there is none")
}
