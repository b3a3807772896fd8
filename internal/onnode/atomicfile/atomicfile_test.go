package atomicfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/atomicfile"
)

// files returns the names in a directory.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestWrite(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(t.TempDir(), "missing", "directory")
	path := filepath.Join(dir, "file")
	for mode, content := range map[os.FileMode]string{0o644: "one", 0o600: "two", 0o666: "three"} {
		g.Expect(atomicfile.Write(path, mode, strings.NewReader(content))).To(Succeed())
		written, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(written)).To(Equal(content))
		info, err := os.Stat(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode()).To(Equal(mode), "the umask does not apply")
		g.Expect(files(t, dir)).To(Equal([]string{"file"}))
	}
}

// On an error the previous file is unchanged, and nothing is left behind.
func TestWriteFails(t *testing.T) {
	g, dir := NewWithT(t), t.TempDir()
	path := filepath.Join(dir, "file")
	g.Expect(atomicfile.Write(path, 0o644, strings.NewReader("before"))).To(Succeed())
	broken := iotest.ErrReader(errors.New("broken pipe"))
	g.Expect(atomicfile.Write(path, 0o644, broken)).To(MatchError(And(
		HavePrefix("write "+path+"; check the free space"), HaveSuffix("broken pipe"))))
	content, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(content)).To(Equal("before"))
	g.Expect(files(t, dir)).To(Equal([]string{"file"}))

	below := filepath.Join(path, "below")
	g.Expect(atomicfile.Write(below, 0o644, strings.NewReader(""))).To(MatchError(
		HavePrefix("create the directory of " + below + "; check that its volume is mounted read-write")))
	g.Expect(os.Mkdir(filepath.Join(dir, "taken"), 0o755)).To(Succeed())
	taken := filepath.Join(dir, "taken")
	g.Expect(atomicfile.Write(taken, 0o644, strings.NewReader(""))).To(MatchError(HavePrefix("write " + taken)))
	g.Expect(files(t, dir)).To(Equal([]string{"file", "taken"}))
	long := filepath.Join(dir, strings.Repeat("a", 255))
	g.Expect(atomicfile.Write(long, 0o644, strings.NewReader(""))).To(MatchError(
		HavePrefix("write " + long + "; check that its volume is mounted read-write")))
}
