package status

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// history is a cluster in which things happen, and the versions that an observer gives its nodes.
type history struct {
	*bed
	random  *rand.Rand
	version uint64
	time    time.Time
	refused map[string]observe.CreateFailure
}

func newHistory(tb testing.TB, nodes int, seed uint64) *history {
	tb.Helper()
	h := &history{bed: newBed(tb, nodes), random: rand.New(rand.NewPCG(seed, 0)), time: now}
	for i := range h.snapshot.Nodes {
		h.changed(i)
	}
	return h
}

func (h *history) changed(i int) {
	h.version++
	h.snapshot.Nodes[i].Version = h.version
}

// happenings are all that can befall the cluster, each with what an observer sees of it.
var happenings = map[string]func(h *history, i int, name operand.Name){
	"a pod fails": func(h *history, i int, name operand.Name) {
		if h.pod(i, name) != nil {
			h.fail(i, name, fmt.Sprintf("exit %d", h.random.IntN(3)))
			h.changed(i)
		}
	},
	"a pod starts": func(h *history, i int, name operand.Name) {
		if h.pod(i, name) != nil {
			h.start(i, name)
			h.changed(i)
		}
	},
	"a pod is gone": func(h *history, i int, name operand.Name) { delete(h.snapshot.Pods[h.name(i)], name); h.changed(i) },
	"a node's condition": func(h *history, i int, _ operand.Name) {
		conditions := &h.snapshot.Nodes[i].Object.Status.Conditions
		*conditions = (*conditions)[:1]
		h.said(i, corev1.ConditionFalse, time.Duration(h.random.IntN(3600))*time.Second)
		h.changed(i)
	},
	"a node opts out": func(h *history, i int, name operand.Name) {
		h.relabel(i, "nvidia.com/gpu.deploy."+string(name), []string{"true", "false", "paused"}[h.random.IntN(3)])
		h.changed(i)
	},
	"a node joins": func(h *history, _ int, _ operand.Name) {
		h.addNode(fmt.Sprintf("new-%d", h.version))
		h.changed(len(h.snapshot.Nodes) - 1)
	},
	"a node leaves": func(h *history, i int, _ operand.Name) {
		h.snapshot.Nodes = slices.Delete(h.snapshot.Nodes, i, i+1)
	},
	"a template changes": func(h *history, _ int, name operand.Name) {
		h.snapshot.DaemonSets[string(name)].Annotations[templateDigest] = fmt.Sprint("v", h.random.IntN(2))
	},
	"a DaemonSet's pods change": func(h *history, _ int, name operand.Name) {
		h.snapshot.DaemonSets[string(name)].Status.NumberReady++
	},
	"pods are refused": func(h *history, _ int, name operand.Name) {
		h.refused = map[string]observe.CreateFailure{string(name): {Reason: "QuotaExceeded", Message: "exceeded quota"}}
	},
	"the spec changes": func(h *history, _ int, _ operand.Name) {
		h.spec.Driver = &v1.DriverSpec{Enabled: new(h.random.IntN(2) == 0)}
	},
	"an hour passes": func(h *history, _ int, _ operand.Name) { h.time = h.time.Add(time.Hour) },
	"a while passes": func(h *history, _ int, _ operand.Name) { h.time = h.time.Add(20 * time.Second) },
}

func (h *history) name(i int) string { return h.snapshot.Nodes[i].Facts.Name }

// pass is one at the time of the history, whose snapshot has the pods that are asked for and no others.
func (h *history) pass(memory *Memory) Pass {
	pass := h.bed.pass()
	pass.Now, pass.Memory, pass.CreateFailures = h.time, memory, h.refused
	// The order in a cache is another one each time.
	pass.Snapshot.Nodes = slices.Clone(pass.Snapshot.Nodes)
	h.random.Shuffle(len(pass.Snapshot.Nodes), func(i, j int) {
		nodes := pass.Snapshot.Nodes
		nodes[i], nodes[j] = nodes[j], nodes[i]
	})
	if memory != nil {
		wanted := memory.Wanted(pass)
		pass.Snapshot.Pods = maps.Clone(pass.Snapshot.Pods)
		maps.DeleteFunc(pass.Snapshot.Pods, func(name string, _ observe.NodePods) bool { return !slices.Contains(wanted, name) })
	}
	return pass
}

// Whatever happens, a status that is made with the memory of those before says what one without it does.
func TestTheMemoryChangesNoVerdict(t *testing.T) {
	names := slices.Sorted(maps.Keys(happenings))
	seen := map[string]int{}
	for seed := range uint64(20) {
		h, memory := newHistory(t, 4, seed), &Memory{}
		policy := newPolicy(h.spec)
		for step := range 60 {
			what := names[h.random.IntN(len(names))]
			operands := slices.Sorted(maps.Keys(h.snapshot.DaemonSets))
			if len(h.snapshot.Nodes) == 0 {
				what = "a node joins"
			}
			happenings[what](h, h.random.IntN(max(1, len(h.snapshot.Nodes))), operand.Name(operands[h.random.IntN(len(operands))]))
			seen[what]++
			policy.Spec = h.spec
			want, wantUntil := Compute(policy, h.pass(nil))
			got, gotUntil := Compute(policy, h.pass(memory))
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")); diff != "" || !wantUntil.Equal(gotUntil) {
				t.Fatalf("seed %d, step %d: %s: until %s, want %s; -want +got:\n%s", seed, step, what, gotUntil, wantUntil, diff)
			}
			policy.Status = want
			NewWithT(t).Expect(memory.verdicts).To(HaveLen(len(h.snapshot.Nodes)))
		}
	}
	NewWithT(t).Expect(seen).To(HaveLen(len(happenings)))
}

// Only what has changed is read and judged again.
func TestTheMemoryWantsWhatHasChanged(t *testing.T) {
	g := NewWithT(t)
	h, memory := newHistory(t, 3, 1), &Memory{}
	h.unknown(nil)
	Compute(newPolicy(h.spec), h.pass(memory))
	g.Expect(memory.Wanted(h.bed.pass())).To(ConsistOf("cpu-1"), "nobody knows it")
	h.fail(1, "driver", "exit 1")
	h.changed(1)
	g.Expect(memory.Wanted(h.bed.pass())).To(ConsistOf("node-00001", "cpu-1"))
	h.snapshot.DaemonSets["driver"].Generation++
	g.Expect(memory.Wanted(h.bed.pass())).To(ConsistOf("node-00000", "node-00001", "node-00002", "cpu-1"))
}

// A pass over a fleet in which nothing has changed, and one over a fleet that nobody remembers.
func BenchmarkCompute(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		for _, remembers := range []bool{true, false} {
			b.Run(fmt.Sprintf("nodes=%d/remembers=%t", nodes, remembers), func(b *testing.B) {
				h := newHistory(b, nodes, 1)
				var memory *Memory
				if remembers {
					memory = &Memory{}
				}
				policy, pass := newPolicy(h.spec), h.pass(memory)
				policy.Status, _ = Compute(policy, pass)
				b.ReportAllocs()
				for b.Loop() {
					if remembers {
						memory.Wanted(pass)
					}
					Compute(policy, pass)
				}
			})
		}
	}
}
