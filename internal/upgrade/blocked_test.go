package upgrade

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// All pods of a node that cannot be evicted are named at once, or counted if their names do not fit into a message.
func TestAllBlockedPodsAreNamed(t *testing.T) {
	g := NewWithT(t)
	pod := func(name, blocked string) WorkloadPod {
		return WorkloadPod{Namespace: "n", Name: name, Blocked: blocked, Forbidden: strings.HasPrefix(blocked, "needs")}
	}
	message := func(pods ...WorkloadPod) string { return new(visit).evicting(pods).progress.Message }
	budget, rule := pod("a", "PDB n/a allows 0 disruptions"), pod("b", "needs x.force: it has no controller")
	g.Expect(message(budget)).To(Equal("PDB n/a allows 0 disruptions: pod n/a"))
	g.Expect(message(pod("c", ""), budget, rule)).To(Equal(
		"PDB n/a allows 0 disruptions: pod n/a; pod n/b needs x.force: it has no controller"))
	many := []WorkloadPod{budget, rule, pod("d", strings.Repeat("x", 60))}
	g.Expect(message(many...)).To(Equal("3 pods are blocked: PDB n/a allows 0 disruptions: pod n/a"))
}
