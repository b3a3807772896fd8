package healthaction

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/controller/allnodes"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
)

// No step is carried out on a node that is assessed by another Basis, whose last write the cache does not show, or for
// which a call has just failed.
func TestNodesAreHeld(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	const retry, backoff = time.Second, time.Minute
	for name, test := range map[string]struct {
		// version is that in the cache; the last write made version 10.
		version string
		basis   int
		failed  time.Time
		held    bool
		recheck time.Duration
		forgets bool
	}{
		"the cache shows the write": {version: "10", basis: 1, forgets: true},
		"the cache is behind":       {version: "9", basis: 1, held: true, recheck: retry},
		"a call has failed": {
			version: "10", basis: 1, failed: now.Add(backoff), held: true, recheck: backoff, forgets: true,
		},
		"the back-off is over": {version: "10", basis: 1, failed: now.Add(-backoff), forgets: true},
		"another basis":        {version: "10", basis: 2, held: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := New(Options{
				Fleet: fleet.New(), Clock: clocktesting.NewFakePassiveClock(now),
				Timing: Timing{Delays: allnodes.Delays{RetryStale: retry}},
			})
			r.Fleet.Publish(fleet.Basis{Policy: &v1.ClusterPolicy{}, Decisions: decide(nil)}, now)
			s := r.newScope()
			entry := &fleet.Entry{BasisVersion: s.Basis.Version}
			if test.basis != 1 {
				entry.BasisVersion++
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: test.version}}
			s.observed = map[string]*observed{"a": {node: node, entry: entry}}
			s.memory.versions["a"], s.memory.failures["a"] = "10", failure{Backoff: times.Backoff{Until: test.failed}}
			s.holdNodes()
			g.Expect(s.observed["a"].hold).To(Equal(test.held))
			result, _ := s.Result(time.Time{})
			g.Expect(result.RequeueAfter).To(Equal(test.recheck))
			g.Expect(s.memory.versions).To(HaveLen(map[bool]int{true: 0, false: 1}[test.forgets]))
		})
	}
}
