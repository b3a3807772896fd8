package cleanup

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// A directory that was replaced after it was found is not entered.
func TestReplacedDirectory(t *testing.T) {
	g, at := NewWithT(t), t.TempDir()
	file := filepath.Join(at, "now", "file")
	g.Expect(os.Mkdir(filepath.Join(at, "before"), 0o755)).To(Succeed())
	g.Expect(os.Mkdir(filepath.Join(at, "now"), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(file, nil, 0o644)).To(Succeed())
	dir, err := os.OpenRoot(at)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = dir.Close() }()
	before, err := dir.Lstat("before")
	g.Expect(err).NotTo(HaveOccurred())
	r := run{}
	r.enter(found{dir: dir, name: "now", path: "/now", info: before}, []string{"file"})
	g.Expect(r.errs).To(ConsistOf(MatchError("clean /now: it was replaced meanwhile")))
	g.Expect(file).To(BeAnExistingFile())
}
