//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// The pieces of an archive, one after the other, are the archive, and none of an earlier archive is among them.
func TestAnArchiveIsCut(t *testing.T) {
	g := NewWithT(t)
	archive := filepath.Join(t.TempDir(), "bundle.tar.xz")
	for _, step := range []struct {
		content string
		sizes   []int
	}{{"0123456789", []int{4, 4, 2}}, {"01234567", []int{4, 4}}, {"0", []int{1}}} {
		g.Expect(os.WriteFile(archive, []byte(step.content), 0o600)).To(Succeed())
		pieces, err := cut(archive, 4)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(filepath.Glob(archive + ".*")).To(Equal(pieces))
		var sizes []int
		var joined []byte
		for _, piece := range pieces {
			content, err := os.ReadFile(piece)
			g.Expect(err).NotTo(HaveOccurred())
			sizes, joined = append(sizes, len(content)), append(joined, content...)
		}
		g.Expect(sizes).To(Equal(step.sizes))
		g.Expect(string(joined)).To(Equal(step.content))
	}
}

// Files that have much in common lie near each other, and none is lost.
func TestTheOrderOfTheArchive(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	for _, path := range []string{"run.sh", "test/node/node.test", ".cache/node/bin/runc", ".cache/controlplane/v1/etcd"} {
		g.Expect(os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o700)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(dir, path), nil, 0o600)).To(Succeed())
	}
	g.Expect(list(dir)).To(Equal([]string{
		".cache/controlplane/v1", ".cache/controlplane/v1/etcd", "test/node", "test/node/node.test", ".cache/controlplane",
		".cache/node", ".cache/node/bin", ".cache/node/bin/runc", ".cache", "run.sh", "test",
	}))
}
