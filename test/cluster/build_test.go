package cluster

import (
	"fmt"
	"os"
	"os/exec"
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

// Programs of a module are merged into one, which knows which of them it is to be: by its name, also where an installer
// has changed that or the caller gives another one.
func TestMergedPrograms(t *testing.T) {
	g := NewWithT(t)
	dir, out := t.TempDir(), t.TempDir()
	files := map[string]string{
		"go.mod":   "module example.com/pin\n\nrequire example.com/m v1.0.0\n\nreplace example.com/m => ./m\n",
		"m/go.mod": "module example.com/m\n", "m/internal/shared/text.go": "package shared\n\nconst Text = \" of m\"\n",
	}
	var tools []tool
	for _, name := range []string{"one", "two.sub"} {
		pkg := "example.com/m/cmd/" + name
		files["m/cmd/"+name+"/main.go"] = fmt.Sprintf("// %s\npackage main\n\nimport (\n\t\"fmt\"\n\n\t"+
			"\"example.com/m/internal/shared\"\n)\n\nfunc main() {\n\tfmt.Print(\"%s\", shared.Text)\n}\n", name, name)
		files["m/cmd/"+name+"/main_test.go"] = "package main\n"
		tools = append(tools, tool{name: name, pkg: pkg, module: "example.com/m", dir: dir})
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
	}
	g.Expect(merge(t.Context(), out, tools)).To(Succeed())
	in := func(name string) string { return filepath.Join(out, name) }
	g.Expect(os.Link(in("two.sub"), in("two.sub.real"))).To(Succeed())
	for _, started := range []struct{ program, as, printed string }{
		{"one", in("one"), "one of m"}, {"two.sub", "two.sub", "two.sub of m"},
		{"two.sub.real", in("two.sub.real"), "two.sub of m"}, {"one", "hook", "one of m"},
	} {
		command := exec.Command(in(started.program))
		command.Args[0] = started.as
		printed, err := command.Output()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(printed)).To(Equal(started.printed), "%s, started as %s", started.program, started.as)
	}
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
