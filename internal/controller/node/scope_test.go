package node

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

// Each call that fails ends the reconcile with its error, which names the call.
func TestCallsThatFail(t *testing.T) {
	refused := errors.New("refused")
	const past = "2026-01-01T00:00:00Z"
	undiscovered := func(e *env) { e.updateNode(func(node *corev1.Node) { node.Labels = nil }) }
	lost := func(e *env) {
		e.updateNode(func(node *corev1.Node) {
			delete(node.Labels, labels.DiscoveryPCIPresent)
			node.Status.Allocatable = nil
			node.Annotations[labels.DiscoveryLostSince], node.Annotations[labels.DiscoveryMissingSince] = past, past
		})
	}
	for name, test := range map[string]struct {
		change func(*env)
		// fails is the call that fails: a write of the node, or one of env.fails.
		fails, want string
		// succeeds checks what the same reconcile does when the call succeeds after the back-off.
		succeeds func(*env)
	}{
		"reading the node": {fails: "get", want: "reading node a: refused"},
		"reading the pods": {fails: "list", want: "refused"},
		"reading the pods of a node that is not discovered": {
			change: func(e *env) {
				undiscovered(e)
				e.updateNode(func(node *corev1.Node) {
					node.Annotations, node.Status.Conditions = nil, readyCondition(corev1.ConditionTrue, now)
				})
			},
			fails: "list", want: "refused",
		},
		"the labels of a new node": {
			change: func(e *env) {
				e.updateNode(func(node *corev1.Node) { delete(node.Labels, labels.GPUPresent) })
			},
			want: "patching labels of node a: refused",
		},
		"releasing a node without GPUs": {
			change: lost, want: "patching labels of node a: refused",
			succeeds: func(e *env) { e.Expect(e.node().Labels).To(HaveKeyWithValue(labels.GPUPresent, labels.False)) },
		},
		"releasing a node once more": {
			change: func(e *env) {
				undiscovered(e)
				e.updateNode(func(node *corev1.Node) { node.Annotations = nil })
			},
			want:     "patching condition of node a: refused",
			succeeds: func(e *env) { e.Expect(e.reported()).To(BeEmpty()) },
		},
		"a stale prover": {
			change: func(e *env) {
				e.put(proverPod("driver", metav1.NewTime(now.Add(100*time.Second)), metav1.NewTime(now.Add(101*time.Second))))
				e.put(proverPod("container-toolkit", metav1.NewTime(now), metav1.NewTime(now.Add(60*time.Second))))
			},
			fails: "delete", want: "deleting pod container-toolkit: refused",
		},
		"the taints": {
			change:   func(e *env) { e.updateNode(func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{notReady} }) },
			want:     "patching taints of node a: refused",
			succeeds: func(e *env) { e.Expect(e.node().Spec.Taints).To(BeEmpty()) },
		},
		"the condition": {
			change: func(e *env) { e.setPod("driver", crashes) }, want: "patching condition of node a: refused",
			succeeds: func(e *env) { e.Expect(e.reported()).To(Equal("False CrashLoopBackOff")) },
		},
		"the condition of the health agent": {
			change:   func(e *env) { e.putCondition(corev1.NodeCondition{Type: labels.ConditionGPUHealthy}) },
			want:     "patching condition of node a: refused",
			succeeds: func(e *env) { e.Expect(assess.GPUHealthyCondition(e.node())).To(BeNil()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.spec.NodeStartup = new(startupSpec(v1.OnFailureReport))
			e.publish()
			e.settle()
			if test.change != nil {
				test.change(e)
			}
			if test.fails == "" {
				e.patchErr = refused
			}
			e.fails = map[string]error{test.fails: refused}
			_, err := e.reconcileAfter(time.Hour)
			if e.Expect(err).To(MatchError(ContainSubstring(test.want))); test.succeeds == nil {
				return
			}
			e.Expect(e.fleet.Get("a").WriteError).To(Equal(err.Error()))
			e.patchErr, e.writes = nil, 0
			_, err = e.reconcileAfter(0)
			e.Expect(err).NotTo(HaveOccurred())
			e.Expect(e.writes).To(BeZero(), "during the back-off")
			_, err = e.reconcileAfter(DefaultTiming().FirstRetry)
			e.Expect(err).NotTo(HaveOccurred())
			test.succeeds(e)
		})
	}
}

// put creates a pod in place of another one of its name.
func (e *env) put(pod *corev1.Pod) {
	e.t.Helper()
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := e.client.Delete(e.t.Context(), other); !apierrors.IsNotFound(err) {
		e.Expect(err).NotTo(HaveOccurred())
	}
	e.Expect(e.client.Create(e.t.Context(), pod)).To(Succeed())
}

// What a reconcile leaves in the entry depends on how it ends.
func TestEndOfAReconcile(t *testing.T) {
	nodes := corev1.Resource("nodes")
	before := fleet.Entry{WriteError: "x", Writes: fleet.Writes{Backoff: 2 * time.Second, RetryAt: now}}
	for name, test := range map[string]struct {
		err       error
		inBackoff bool
		backoff   time.Duration
		// after is the entry of which the facts are left out.
		writeError   string
		writes       fleet.Writes
		requeueAfter time.Duration
	}{
		"well": {backoff: 2 * time.Second, writes: fleet.Writes{RetryAt: now}, requeueAfter: time.Minute},
		"with a write that was skipped": {
			backoff: 2 * time.Second, inBackoff: true, writeError: "x", writes: before.Writes, requeueAfter: time.Minute,
		},
		"with a node that is gone": {
			err: apierrors.NewNotFound(nodes, "a"), backoff: 2 * time.Second, writeError: "x", writes: before.Writes,
			requeueAfter: time.Minute,
		},
		"with a conflict": {
			err: apierrors.NewConflict(nodes, "a", nil), backoff: 2 * time.Second, writeError: "x",
			writes:       fleet.Writes{Backoff: 2 * time.Second, RetryAt: now.Add(time.Second)},
			requeueAfter: time.Second,
		},
		"with the first error": {
			err: errors.New("y"), writeError: "y", writes: fleet.Writes{Backoff: time.Second, RetryAt: now.Add(time.Second)},
		},
		"with another error": {
			err: errors.New("y"), backoff: 2 * time.Second, writeError: "y",
			writes: fleet.Writes{Backoff: 4 * time.Second, RetryAt: now.Add(4 * time.Second)},
		},
		"with many errors": {
			err: errors.New("y"), backoff: 20 * time.Second, writeError: "y",
			writes: fleet.Writes{Backoff: 30 * time.Second, RetryAt: now.Add(30 * time.Second)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, f := NewWithT(t), fleet.New()
			s := &scope{
				Reconciler: New(Options{Fleet: f, Timing: DefaultTiming()}), now: now, inBackoff: test.inBackoff,
				node: &corev1.Node{}, entry: before, requeueAfter: time.Minute,
			}
			s.entry.Facts.Name, s.entry.Writes.Backoff = "a", test.backoff
			result, err := s.finish(test.err)
			if test.requeueAfter == 0 {
				g.Expect(err).To(Equal(test.err))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(result.RequeueAfter).To(Equal(test.requeueAfter))
			g.Expect(f.Get("a")).To(And(HaveField("WriteError", test.writeError), HaveField("Writes", test.writes)))
		})
	}
}

// A node that is not assessed any more keeps its back-off.
func TestClearedAssessment(t *testing.T) {
	g := NewWithT(t)
	kept := fleet.Writes{Version: "1", RetryAt: now, Backoff: time.Second}
	s := &scope{basis: &fleet.Basis{Version: 7}, entry: fleet.Entry{
		Facts: nodeinfo.Facts{Name: "a"}, WriteError: "x", Latest: at(v1.StageDriver), NodePool: "x", Writes: kept,
	}}
	s.entry.Writes.Stage = "x"
	s.clearAssessment()
	g.Expect(s.entry).To(Equal(fleet.Entry{
		Facts: nodeinfo.Facts{Name: "a"}, BasisVersion: 7, WriteError: "x", Writes: kept,
	}))
}

// The state of node discovery is that of nodes without its labels.
func TestStateOfDiscovery(t *testing.T) {
	for name, has := range map[string]bool{"without labels": false, "with labels": true} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			s := e.scope(func(s *scope) { s.entry.Facts.HasDiscoveryLabels = has })
			e.Expect(s.recordDiscovery(t.Context())).To(Succeed())
			if has {
				e.Expect(s.entry.Discovering).To(BeEmpty())
			} else {
				e.Expect(s.entry.Discovering).To(HaveKey(operand.Name("node-discovery")))
			}
		})
	}
}

// Facts are read from the Node, or kept with its plan but for what is found in each reconcile.
func TestKeptFacts(t *testing.T) {
	e := newEnv(t)
	kept := plan.NodePlan{Facts: nodeinfo.Facts{Name: "kept", SelectorLabelGraceOver: true, MIGOverdue: true}}
	s := e.scope(func(s *scope) { s.plans(kept) })
	e.Expect(s.facts()).To(Equal(nodeinfo.Facts{Name: "kept"}))
	s.node.ResourceVersion += "0"
	e.Expect(s.facts().Name).To(Equal("a"), "of another version")
	s.entry.Facts.SelectorLabelGraceOver, s.entry.Facts.MIGOverdue = true, true
	s.basis.Decisions = &plan.Decisions{}
	e.Expect(s.planInputs()).To(Equal(fleet.PlanInputs{
		Version: s.node.ResourceVersion, Decisions: s.basis.Decisions, SelectorLabelGraceOver: true, MIGOverdue: true,
	}))
}

// The next assessment is due when the report, the assessment or the overdue layout says so.
func TestNextAssessment(t *testing.T) {
	pending := assess.Assessment{NodeVerdict: readiness.NodeVerdict{Verdict: readiness.Verdict{
		State: readiness.Failed, Reason: v1.ReasonMIGConfigPending,
	}}}
	overdue, until, past := pending, pending, pending
	overdue.Overdue, until.Until, past.Until = true, now.Add(time.Minute), now
	for name, test := range map[string]struct {
		latest assess.Assessment
		known  bool
		want   time.Duration
	}{
		"never": {latest: pending}, "at a time": {latest: until, want: time.Minute},
		"now": {latest: past, want: time.Millisecond}, "overdue": {latest: overdue, want: time.Millisecond},
		"overdue before": {latest: overdue, known: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := NewWithT(t), &scope{Reconciler: New(Options{Timing: DefaultTiming()}), now: now}
			s.entry.Latest, s.entry.Facts.MIGOverdue = test.latest, test.known
			s.enterReport()
			g.Expect(s.requeueAfter).To(Equal(test.want))
			g.Expect(s.entry.Report.Reason).To(Equal(v1.ReasonMIGConfigPending))
		})
	}
}

// What a node is assessed by is from its entry, the fleet and, before that is known, its record.
func TestInputOfAnAssessment(t *testing.T) {
	e := newEnv(t)
	e.publish()
	e.settle()
	found := []neighbour.Neighbour{{Kind: neighbour.DevicePlugin, Workload: "DaemonSet x/y"}}
	s := e.scope(func(s *scope) {
		s.basis = new(*s.basis)
		s.basis.Stack.StartFailures = map[types.UID]assess.PodFailure{"x": {}}
		s.node.Annotations[labels.ReportRecord] = `{"neighbours":[{"kind":"x","workload":"w"}]}`
		s.entry.Latest.ForeignSince = now.Add(-time.Hour)
		s.entry.Writes.Tenants.Pods, s.entry.Boot.Refused = []string{"team/x"}, "pods"
		s.entry.Writes.MIGCause = fleet.MIGCause{Words: "no room", Reads: 1}
	})
	pods := assess.Pods{"driver": readyPod()}
	in, recheck := s.assessInput(pods)
	e.Expect(recheck).To(BeZero())
	want := assess.Input{
		NodePlan: *s.nodePlan(), Node: s.node, Pods: pods, Stack: s.basis.Stack, Previous: s.entry.Latest.ReadySince(),
		Now: s.now, Tenants: []string{"team/x"}, MIGCause: "no room", RefusedPods: "pods", MIGCauseSought: true,
		Neighbours: assess.RecordOf(s.node).Neighbours, ForeignSince: now.Add(-time.Hour),
	}
	e.Expect(in).To(Equal(want))
	e.Expect(in.Neighbours).To(HaveLen(1))
	e.fleet.SetNeighbours(neighbour.OnNodes{"a": found})
	in, _ = s.assessInput(pods)
	want.Neighbours = found
	e.Expect(in).To(Equal(want))
}

// The pods that labels depend on count once they are ready.
func TestReadyPods(t *testing.T) {
	e := newEnv(t)
	s := e.scope(func(*scope) {})
	starting := readyPod()
	starting.Status.Conditions[0].Status = corev1.ConditionFalse
	for name, test := range map[string]struct {
		pods assess.Pods
		want plan.ReadyPods
	}{
		"none":         {},
		"the driver":   {assess.Pods{"driver": readyPod()}, plan.ReadyPods{Driver: true}},
		"the injector": {assess.Pods{"container-toolkit": readyPod(), "driver": starting}, plan.ReadyPods{Injector: true}},
		"others":       {assess.Pods{"device-plugin": readyPod(), "container-toolkit": starting}, plan.ReadyPods{}},
	} {
		NewWithT(t).Expect(s.readyPods(test.pods)).To(Equal(test.want), name)
	}
}

// A release that has failed after the labels were removed is recognised by the rest.
func TestPartlyReleasedNodes(t *testing.T) {
	g, tainted, shown := NewWithT(t), &corev1.Node{}, &corev1.Node{}
	tainted.Annotations = map[string]string{labels.StartupTaints: "x"}
	shown.Status.Conditions = []corev1.NodeCondition{{Type: labels.ConditionGPUHealthy}}
	g.Expect(isPartlyReleased(&corev1.Node{})).To(BeFalse())
	g.Expect(isPartlyReleased(tainted)).To(BeTrue())
	g.Expect(isPartlyReleased(shown)).To(BeTrue())
}
