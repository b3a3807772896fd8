package resultfile_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/resultfile"
)

type result struct {
	Case   string
	Passed bool
}

func caseOf(r result) string { return r.Case }

// A run that was interrupted goes on with what is in the file: the last result of each case, and of the same programs
// alone.
func TestResultsOfAnEarlierRun(t *testing.T) {
	g := NewWithT(t)
	dir, program := t.TempDir(), filepath.Join(t.TempDir(), "program")
	g.Expect(os.WriteFile(program, []byte("a"), 0o600)).To(Succeed())
	open := func() *resultfile.File[string, result] {
		f, err := resultfile.Open(filepath.Join(dir, "results"), caseOf, program)
		g.Expect(err).NotTo(HaveOccurred())
		return f
	}
	first := open()
	for _, one := range []result{{"a", false}, {"b", true}, {"a", true}} {
		g.Expect(first.Add(one)).To(Succeed())
	}
	want := map[string]result{"a": {"a", true}, "b": {"b", true}}
	g.Expect(first.All()).To(Equal(want))
	g.Expect(open().All()).To(Equal(want))
	g.Expect(open().Of("a")).To(Equal(result{"a", true}))
	g.Expect(open().Of("c")).To(Equal(result{}))

	files, err := filepath.Glob(filepath.Join(dir, "results", "*"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveLen(1))
	g.Expect(os.WriteFile(program, []byte("b"), 0o600)).To(Succeed())
	other := open()
	g.Expect(other.All()).To(BeEmpty(), "of another program")
	g.Expect(other.Add(result{"b", false})).To(Succeed())
	g.Expect(other.Read(files[0])).To(Succeed())
	g.Expect(other.All()).To(Equal(map[string]result{"a": {"a", true}, "b": {"b", false}}))
	g.Expect(other.Read(filepath.Join(dir, "missing"))).To(MatchError(os.ErrNotExist))

	g.Expect(os.WriteFile(files[0], []byte("{\n"), 0o600)).To(Succeed())
	g.Expect(other.Read(files[0])).To(MatchError(ContainSubstring("remove the file to start over")))
}

// The commit of a tree with changes of tracked files is marked; outside a repository there is none.
func TestCommit(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
	g.Expect(resultfile.Commit(dir)).To(BeEmpty())
	git := func(arguments ...string) string {
		t.Helper()
		identity := []string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}
		output, err := exec.Command("git", append(identity, arguments...)...).CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(output))
		return strings.TrimSpace(string(output))
	}
	tracked := filepath.Join(dir, "a")
	g.Expect(os.WriteFile(tracked, []byte("a"), 0o600)).To(Succeed())
	git("init", "--quiet")
	git("add", "a")
	git("commit", "--quiet", "--message=a")
	head := git("rev-parse", "--short", "HEAD")
	g.Expect(os.WriteFile(filepath.Join(dir, "untracked"), nil, 0o600)).To(Succeed())
	g.Expect(resultfile.Commit(dir)).To(Equal(head))
	g.Expect(os.WriteFile(tracked, []byte("b"), 0o600)).To(Succeed())
	g.Expect(resultfile.Commit(dir)).To(Equal(head + "-dirty"))
	git("add", "untracked")
	git("commit", "--quiet", "--message=b", "untracked")
	g.Expect(resultfile.Commit(dir, "a")).To(Equal(head + "-dirty"))
	git("checkout", "--quiet", "a")
	g.Expect(resultfile.Commit(dir, "a")).To(Equal(head))
	g.Expect(os.WriteFile(filepath.Join(dir, "new"), nil, 0o600)).To(Succeed())
	g.Expect(resultfile.Commit(dir, "a", "new")).To(Equal(head + "-dirty"))
}

func TestEarlier(t *testing.T) {
	text := resultfile.Earlier([]string{"c", "now", "b", "c"}, "now", "%d at %s.")
	NewWithT(t).Expect(text).To(Equal("1 at b.2 at c."))
}
