package kmod

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestLoaded(t *testing.T) {
	tests := map[string]struct {
		state string // Of nvidia_uvm; no file if empty.
		query string
		want  bool
	}{
		"a module that is loaded":         {state: "live\n", query: "nvidia_uvm", want: true},
		"a module that is built in":       {query: "nvidia_uvm", want: true},
		"a module that is being loaded":   {state: "coming\n", query: "nvidia_uvm"},
		"a module that is being unloaded": {state: "going\n", query: "nvidia_uvm"},
		"a module that is missing":        {state: "live\n", query: "nvidia"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			sys := t.TempDir()
			dir := filepath.Join(sys, "module", "nvidia_uvm")
			g.Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
			if tc.state != "" {
				g.Expect(os.WriteFile(filepath.Join(dir, "initstate"), []byte(tc.state), 0o600)).To(Succeed())
			}
			g.Expect(Loaded(sys, tc.query)).To(Equal(tc.want))
		})
	}
}

func TestVersion(t *testing.T) {
	g, sys := NewWithT(t), t.TempDir()
	g.Expect(Version(sys, "nvidia")).To(BeEmpty())
	g.Expect(os.MkdirAll(filepath.Join(sys, "module", "nvidia"), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(sys, "module", "nvidia", "version"), []byte("580.1\n"), 0o600)).To(Succeed())
	g.Expect(Version(sys, "nvidia")).To(Equal("580.1"))
}
