package resultfile_test

import (
	"os"
	"path/filepath"
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
