package pinned_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/pinned"
)

func TestAToolIsTheOneThatIsPinned(t *testing.T) {
	repo := t.TempDir()
	write := func(path, text string) {
		g := NewWithT(t)
		g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(repo, path)), 0o700)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(repo, path), []byte(text), 0o600)).To(Succeed())
	}
	write("test/tools/a/go.mod", "module example.com/a\n\nrequire example.com/tool v1.2.3 // indirect\n")
	write(".cache/tools/tool-v1.2.3", "")
	write("Makefile", "%/tool-v1.2.4:\n\t@touch $@\n")
	tests := map[string]struct{ dir, module, version, err string }{
		"built":           {dir: "a", module: "example.com/tool", version: "v1.2.3"},
		"another module":  {dir: "a", module: "example.com/other", err: "go.mod does not require example.com/other"},
		"another folder":  {dir: "b", module: "example.com/tool", err: "reading the pins: "},
		"to be built":     {dir: "next", module: "example.com/tool", version: "v1.2.4"},
		"cannot be built": {dir: "last", module: "example.com/tool", err: "building tool by make: exit status 2"},
	}
	write("test/tools/next/go.mod", "module example.com/a\n\nrequire example.com/tool v1.2.4\n")
	write("test/tools/last/go.mod", "module example.com/a\n\nrequire example.com/tool v1.2.5\n")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			path, err := pinned.Tool(repo, test.dir, "tool", test.module)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(path).To(Equal(filepath.Join(repo, ".cache", "tools", "tool-"+test.version)))
			g.Expect(path).To(BeARegularFile())
		})
	}
}

// TestAToolIsBuiltOnce asks for a tool from several goroutines, as parallel tests do in a fresh clone.
func TestAToolIsBuiltOnce(t *testing.T) {
	g := NewWithT(t)
	repo := t.TempDir()
	g.Expect(os.MkdirAll(filepath.Join(repo, "test/tools/a"), 0o700)).To(Succeed())
	for path, text := range map[string]string{
		"test/tools/a/go.mod": "module example.com/a\n\nrequire example.com/tool v1.2.3\n",
		"Makefile":            "%/tool-v1.2.3:\n\t@echo built >> builds\n\t@sleep 0.2\n\t@touch $@\n",
	} {
		g.Expect(os.WriteFile(filepath.Join(repo, path), []byte(text), 0o600)).To(Succeed())
	}
	errs := make(chan error)
	const callers = 4
	for range callers {
		go func() {
			_, err := pinned.Tool(repo, "a", "tool", "example.com/tool")
			errs <- err
		}()
	}
	for range callers {
		g.Expect(<-errs).NotTo(HaveOccurred())
	}
	builds, err := os.ReadFile(filepath.Join(repo, "builds"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(builds)).To(Equal("built\n"))
}
