package node

import (
	"testing"

	. "github.com/onsi/gomega"
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
