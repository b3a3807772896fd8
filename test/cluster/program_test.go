package cluster_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestReadObjects: empty documents are none, and a document that cannot be parsed is an error.
func TestReadObjects(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "objects.yaml")
	write := func(text string) { g.Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed()) }
	write("---\n# nothing\n---\nkind: A\nmetadata: {name: x}\n---\nkind: B\n")
	objects, err := cluster.ReadObjects(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveLen(2))
	g.Expect([]string{objects[0].GetKind(), objects[0].GetName(), objects[1].GetKind()}).To(Equal([]string{"A", "x", "B"}))
	write("kind: [")
	_, err = cluster.ReadObjects(file)
	g.Expect(err).To(MatchError(ContainSubstring("read objects of " + file)))
	_, err = cluster.ReadObjects(file + "-missing")
	g.Expect(err).To(MatchError(os.ErrNotExist))
}
