//go:build linux

package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/needs"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// The pieces of an archive, one after the other, are the archive, and none of an earlier archive is among them.
func TestAnArchiveIsCut(t *testing.T) {
	g := NewWithT(t)
	archive := filepath.Join(t.TempDir(), "bundle.tar.xz")
	for _, step := range []struct {
		content string
		sizes   []int
	}{
		{"0123456789abcdefghijklmnopqrstuvwxyz0123456789", []int{4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2}},
		{"01234567", []int{4, 4}},
		{"0", []int{1}},
	} {
		g.Expect(removePieces(archive)).To(Succeed())
		g.Expect(os.WriteFile(archive, []byte(step.content), 0o600)).To(Succeed())
		pieces, err := cut(archive, 4)
		g.Expect(err).NotTo(HaveOccurred())
		// As a shell joins them.
		g.Expect(filepath.Glob(archive + ".??")).To(Equal(pieces))
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
		needs.Unmet(t, needs.Xz, err)
	}
	dir := t.TempDir()
	bundle, archive := filepath.Join(dir, "bundle"), filepath.Join(dir, "bundle.tar.xz")
	g.Expect(os.MkdirAll(filepath.Join(bundle, "test"), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(bundle, "run.sh"), []byte("a script"), 0o755)).To(Succeed())
	g.Expect(os.Link(filepath.Join(bundle, "run.sh"), filepath.Join(bundle, "test", "hard"))).To(Succeed())
	g.Expect(os.Symlink("hard", filepath.Join(bundle, "test", "soft"))).To(Succeed())
	image := filepath.Join(bundle, claims+".tar")
	g.Expect(os.MkdirAll(filepath.Dir(image), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(image, []byte("an image"), 0o644)).To(Succeed())
	// The pieces of an earlier archive, which was larger.
	for _, piece := range []string{".00", ".01", ".10"} {
		g.Expect(os.WriteFile(archive+piece, nil, 0o600)).To(Succeed())
	}
	g.Expect(pack(t.Context(), bundle, archive, packing{"1MiB", most}, io.Discard)).To(Succeed())
	further := filepath.Join(dir, "bundle-dra.tar.xz")
	g.Expect(filepath.Glob(filepath.Join(dir, "bundle*.tar.xz*"))).To(ConsistOf(archive, further))
	unpacked := t.TempDir()
	unpack := func(archive string) {
		out, err := exec.CommandContext(t.Context(), "tar", "-C", unpacked, "-xJf", archive).CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
	}
	unpack(archive)
	image = filepath.Join(unpacked, "bundle", claims+".tar")
	g.Expect(image).NotTo(BeAnExistingFile(), "what is for claims is in an archive of its own")
	unpack(further)
	g.Expect(os.ReadFile(image)).To(Equal([]byte("an image")))
	g.Expect(os.Readlink(filepath.Join(unpacked, "bundle/test/soft"))).To(Equal("hard"))
	script, err := os.Stat(filepath.Join(unpacked, "bundle/run.sh"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(script.Mode().Perm()).To(BeEquivalentTo(0o755))
	hard, err := os.Stat(filepath.Join(unpacked, "bundle/test/hard"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.SameFile(script, hard)).To(BeTrue())
	g.Expect(pack(t.Context(), bundle, archive, packing{"1MiB", 10}, io.Discard)).To(MatchError(
		HaveSuffix("bundle.tar.xz is too large: 0.0 MiB, the limit is 0.0 MiB")))
	g.Expect(archive).NotTo(BeAnExistingFile())
}

// Images are the same when they are read from the store. A file that several have is stored once, with the first.
func TestImagesAreStored(t *testing.T) {
	g := NewWithT(t)
	dir, store := t.TempDir(), t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, content := range map[string]string{"a": "shared", "b": "first", "c": "other", "d": "shared"} {
		g.Expect(os.WriteFile(in(name), []byte(content), 0o600)).To(Succeed())
	}
	g.Expect(os.Link(in("b"), in("b2"))).To(Succeed())
	images := node.NewStore(store)
	for name, image := range map[string]node.Image{
		"first": {
			Names: []string{"registry/first:v1"},
			Files: map[string]string{"lib/a": in("a"), "bin/b": in("b"), "bin/b2": in("b2")},
			Links: map[string]string{"link": "bin/b"}, Entrypoint: []string{"/bin/b"}, Env: []string{"A=b"}, User: "1:1",
		},
		"other": {Names: []string{"registry/other:v1"}, Files: map[string]string{"bin/c": in("c")}},
	} {
		g.Expect(images.Add(image)).To(Succeed())
		stored, err := node.ReadImage(filepath.Join(store, name+".json"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(stored.Archive()).To(Equal(must(image.Archive())))
	}
	last := node.Image{Names: []string{"registry/last:v1"}, Files: map[string]string{"lib/d": in("d")}}
	g.Expect(images.Add(last)).To(Succeed())
	g.Expect(filepath.Join(store, "last")).NotTo(BeAnExistingFile())
	stored, err := node.ReadImage(filepath.Join(store, "last.json"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(stored.Files).To(Equal(map[string]string{"lib/d": filepath.Join(store, "first/lib/a")}))
	g.Expect(stored.Archive()).To(Equal(must(last.Archive())))
}

func must(content []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return content
}

// Without a compression that works an archive is refused: tar, which fills the pipe, does not wait for ever.
func TestAnArchiveNeedsTheCompression(t *testing.T) {
	for name, script := range map[string]string{"missing": "", "ends early": "#!/bin/sh\nexit 1\n"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir, programs := t.TempDir(), t.TempDir()
			tar, err := exec.LookPath("tar")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(os.Symlink(tar, filepath.Join(programs, "tar"))).To(Succeed())
			if script != "" {
				g.Expect(os.WriteFile(filepath.Join(programs, "xz"), []byte(script), 0o700)).To(Succeed())
			}
			t.Setenv("PATH", programs)
			bundle := filepath.Join(dir, "bundle")
			g.Expect(os.Mkdir(bundle, 0o700)).To(Succeed())
			// More than a pipe holds.
			g.Expect(os.WriteFile(filepath.Join(bundle, "file"), make([]byte, 4<<20), 0o600)).To(Succeed())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			g.Expect(pack(ctx, bundle, filepath.Join(dir, "bundle.tar.xz"), packing{"1MiB", most}, io.Discard)).NotTo(Succeed())
			g.Expect(ctx.Err()).NotTo(HaveOccurred(), "tar was waited for")
		})
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
