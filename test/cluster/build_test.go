package cluster

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// A program is linked again only if its sources have changed, and whoever runs the old one keeps it.
func TestAProgramIsLinkedWhenItsSourcesChange(t *testing.T) {
	g := NewWithT(t)
	dir, out := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		g.Expect(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)).To(Succeed())
	}
	built := func() os.FileInfo {
		program := filepath.Join(out, "program")
		g.Expect(goBuild(t.Context(), dir, program, "-s -w", ".")).To(Succeed())
		info, err := os.Stat(program)
		g.Expect(err).NotTo(HaveOccurred())
		left, err := os.ReadDir(out)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(left).To(HaveLen(1), "nothing is left of the build")
		return info
	}
	write("go.mod", "module example.com/program\n")
	write("main.go", "package main\n\nfunc main() { println(1) }\n")
	first := built()
	g.Expect(os.SameFile(first, built())).To(BeTrue(), "the same file without a change")
	write("main.go", "package main\n\nfunc main() { println(2) }\n")
	g.Expect(os.SameFile(first, built())).To(BeFalse(), "another file after a change")
}

// Who renders a folder of config may change the objects: the next one gets those of the folder.
func TestRenderedObjectsAreIndependent(t *testing.T) {
	g := NewWithT(t)
	for range 3 {
		objects, err := Render("../../config/crd")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(objects).To(ContainElement(HaveField("GetName()", "clusterpolicies.nvidia.com")))
		for _, object := range objects {
			object.SetName("another")
		}
	}
}

// A program that is not pinned is refused before anything is built.
func TestOnlyPinnedProgramsOfNVIDIAAreBuilt(t *testing.T) {
	g := NewWithT(t)
	_, err := EnsureNVIDIAPrograms(t.Context(), os.Stderr, "nvidia-device-plugin", "nvidia-smi")
	g.Expect(err).To(MatchError("no module below test/nvidia has the program nvidia-smi"))
}
