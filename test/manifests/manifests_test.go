package manifests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// TestEveryFindingHasAReason runs all checks on all manifests, and prints how many objects each of them checked and
// what it found.
func TestEveryFindingHasAReason(t *testing.T) {
	g := NewWithT(t)
	reasons, err := readReasons("reasons.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	all, objects, names := newVerdict(), 0, map[string]bool{}
	from := sources(t)
	for _, s := range from {
		own, err := byOwnChecks(s.objects)
		g.Expect(err).NotTo(HaveOccurred(), s.name)
		all.add(own)
		all.add(byKubeScore(t, s.objects))
		objects += len(s.objects)
		for _, o := range s.objects {
			names[nameOf(o)] = true
		}
	}
	scored := kubeScoreChecks(t)
	checks := slices.Sorted(maps.Keys(all.judged))
	for _, name := range scored {
		if !slices.Contains(checks, name) {
			checks = append(checks, name)
		}
	}
	unexcused, needless := compare(all, reasons)
	t.Logf("%d objects (%d by name) of %d sources, %d checks (%d of kube-score), %d findings, %d without a reason, %d "+
		"reasons without a finding",
		objects, len(names), len(from), len(checks), len(scored), len(all.found), len(unexcused), len(needless))
	t.Log("\n" + table(all, checks))
	g.Expect(slices.Concat(unexcused, needless)).To(BeEmpty())
}

// table returns a line for each check.
func table(v *verdict, checks []string) string {
	lines := []string{fmt.Sprintf("%-66s %8s %8s", "check", "looks at", "findings")}
	for _, name := range checks {
		lines = append(lines, fmt.Sprintf("%-66s %8d %8d", name, v.judged[name], len(v.of(name))))
	}
	return strings.Join(lines, "\n")
}
