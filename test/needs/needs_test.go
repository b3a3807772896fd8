package needs_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/needs"
)

// outcome is a test that records how it ends.
type outcome struct {
	testing.TB
	failed, skipped []any
}

func (*outcome) Helper()             {}
func (o *outcome) Fatal(args ...any) { o.failed = args; panic("ends") }
func (o *outcome) Skip(args ...any)  { o.skipped = args; panic("ends") }

func TestUnmet(t *testing.T) {
	for name, test := range map[string]struct {
		ci, allowed string
		fails       bool
	}{
		"on a laptop":                   {},
		"in CI":                         {ci: "true", fails: true},
		"in CI, where another may lack": {ci: "true", allowed: "root,compiler", fails: true},
		"in CI that has none":           {ci: "true", allowed: "root,cgroup"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			t.Setenv("CI", test.ci)
			t.Setenv("ALLOW_MISSING", test.allowed)
			o := &outcome{}
			g.Expect(func() { needs.Unmet(o, needs.Cgroup, "no cgroup v1") }).To(Panic())
			if test.fails {
				g.Expect(o.failed).To(ConsistOf(MatchError(ContainSubstring("CI lacks cgroup"))))
				return
			}
			g.Expect(o.failed).To(BeEmpty())
			g.Expect(o.skipped).To(Equal([]any{"no cgroup v1"}))
		})
	}
}
