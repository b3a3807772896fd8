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

// TestAProgramFindsFilesWhereItsImageHasThem starts a program that needs no file of its own: everything else of the
// machine stays where it is, but nothing in the top folders of the paths.
func TestAProgramFindsFilesWhereItsImageHasThem(t *testing.T) {
	g := NewWithT(t)
	image, logs := t.TempDir(), t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(image, "manifest"), []byte("of the image\n"), 0o600)).To(Succeed())
	shell, err := filepath.EvalSymlinks("/bin/sh")
	g.Expect(err).NotTo(HaveOccurred())
	program, err := cluster.StartProgram(cluster.ProgramOptions{
		Binary: shell, LogFile: filepath.Join(logs, "log"), Files: map[string]string{"/opt/a/b": image, "/other": image},
		Args: []string{"-c", "exec cat /opt/a/b/manifest /other/manifest $0", filepath.Join(image, "manifest")},
	})
	g.Expect(err).NotTo(HaveOccurred())
	waited := program.Wait()
	log, err := os.ReadFile(program.LogFile)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(waited).NotTo(HaveOccurred(), "%s", log)
	g.Expect(string(log)).To(Equal("of the image\nof the image\nof the image\n"))
	g.Expect("/other").NotTo(BeAnExistingFile(), "this program's root is as before")
}
