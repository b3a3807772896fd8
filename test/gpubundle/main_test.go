//go:build linux

package main

import (
	"io"
	"os"
	"os/exec"
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

// What is unpacked has the links of the folder: symbolic ones with their targets, and files of one content as one file.
func TestAnArchiveIsUnpacked(t *testing.T) {
	g := NewWithT(t)
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skipf("needs xz: %v", err)
	}
	dir := t.TempDir()
	bundle, archive := filepath.Join(dir, "bundle"), filepath.Join(dir, "bundle.tar.xz")
	g.Expect(os.MkdirAll(filepath.Join(bundle, "test"), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(bundle, "run.sh"), []byte("a script"), 0o755)).To(Succeed())
	g.Expect(os.Link(filepath.Join(bundle, "run.sh"), filepath.Join(bundle, "test", "hard"))).To(Succeed())
	g.Expect(os.Symlink("hard", filepath.Join(bundle, "test", "soft"))).To(Succeed())
	g.Expect(pack(t.Context(), bundle, archive, io.Discard)).To(Succeed())
	unpacked := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "tar", "-C", unpacked, "-xJf", archive).CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	g.Expect(os.Readlink(filepath.Join(unpacked, "bundle/test/soft"))).To(Equal("hard"))
	script, err := os.Stat(filepath.Join(unpacked, "bundle/run.sh"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(script.Mode().Perm()).To(BeEquivalentTo(0o755))
	hard, err := os.Stat(filepath.Join(unpacked, "bundle/test/hard"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.SameFile(script, hard)).To(BeTrue())
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
