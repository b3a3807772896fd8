package upgrade

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// unit is a pass on a fake API server that has these objects. Its policy has the defaults, and it knows no node.
type unit struct {
	*WithT
	*scope
	ctx    context.Context //nolint:containedctx // That of one test.
	server client.WithWatch
	// logged are the messages of the pass.
	logged []string
}

var resource = schema.GroupResource{Resource: "things"}

// What the API server may answer.
var (
	errConflict  = apierrors.NewConflict(resource, "x", errors.New("it has changed"))
	errNotFound  = apierrors.NewNotFound(resource, "x")
	errExists    = apierrors.NewAlreadyExists(resource, "x")
	errForbidden = apierrors.NewForbidden(resource, "x", errors.New("no"))
	errInternal  = apierrors.NewInternalError(errors.New("etcd is full"))
)

func newUnit(t *testing.T, calls interceptor.Funcs, objects ...client.Object) *unit {
	t.Helper()
	u := &unit{WithT: NewWithT(t)}
	u.server = fake.NewClientBuilder().WithObjects(objects...).WithStatusSubresource(&corev1.Node{}).
		WithIndex(&corev1.Pod{}, observe.PodNodeField, observe.IndexPodNode).
		WithIndex(&corev1.Pod{}, "metadata.name", func(pod client.Object) []string { return []string{pod.GetName()} }).
		Build()
	c, clock := interceptor.NewClient(u.server, calls), clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	r := New(Options{
		Client: c, Live: c, Namespace: "ns", Fleet: fleet.New(), Clock: clock, Timing: DefaultTiming(),
		Events: events.NewRecorder(c, clock, func(string) {}),
	})
	r.Fleet.Hydrate(nil)
	in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{}), Namespace: "ns"}
	r.Fleet.Publish(fleet.Basis{Policy: &v1.ClusterPolicy{}, Decisions: plan.Decide(nil, in)}, clock.Now())
	u.scope = r.newScope()
	u.observed = map[string]*observed{}
	u.ctx = log.IntoContext(t.Context(), funcr.NewJSON(func(line string) { u.logged = append(u.logged, line) },
		funcr.Options{Verbosity: 1}))
	return u
}

// requeued returns the delay before the next pass.
func (u *unit) requeued() time.Duration {
	result, _ := u.Result(time.Time{})
	return result.RequeueAfter
}

// managed adds an entry for a node with GPUs to the fleet.
func (u *unit) managed(name string) *fleet.Entry {
	facts := nodeinfo.Facts{Name: name, HasGPU: true, HasDiscoveryLabels: true}
	entry := &fleet.Entry{
		Facts: facts, BasisVersion: u.Basis.Version, Planned: &fleet.PlannedNode{NodePlan: u.Basis.Decisions.ForNode(facts)},
	}
	u.Fleet.Set(entry)
	u.view = u.Fleet.UpgradeView(noNames)
	return entry
}

// expectEvents expects that the API server has these Events and no others.
func (u *unit) expectEvents(want ...events.Event) {
	other := fake.NewClientBuilder().Build()
	recorder := events.NewRecorder(other, u.Clock, func(string) {})
	for _, event := range want {
		recorder.Record(u.ctx, event)
	}
	found, expected := &corev1.EventList{}, &corev1.EventList{}
	u.Expect(u.server.List(u.ctx, found)).To(Succeed())
	u.Expect(other.List(u.ctx, expected)).To(Succeed())
	u.Expect(expected.Items).To(HaveLen(len(want)))
	u.Expect(found.Items).To(Equal(expected.Items))
}

// A call for a node is over if its object is gone, repeated soon after a conflict, and later after any other error.
func TestOutcomesOfACall(t *testing.T) {
	timing := DefaultTiming()
	for name, test := range map[string]struct {
		err      error
		done     bool
		requeued time.Duration
		failing  string
	}{
		"success":         {done: true},
		"of what is gone": {err: errNotFound},
		"a conflict":      {err: errConflict, requeued: timing.RetryStale, failing: "before: refused"},
		"an error":        {err: errInternal, requeued: 2 * timing.FirstRetry, failing: "evicting: " + errInternal.Error()},
		"no answer": {
			err: context.DeadlineExceeded, requeued: 2 * timing.FirstRetry, failing: "evicting: context deadline exceeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, interceptor.Funcs{})
			u.memory.noteCall("a", "before", errors.New("refused"), u.Now, &u.Timing)
			done := u.call(u.ctx, "a", "evicting", func(ctx context.Context) error {
				_, limited := ctx.Deadline()
				u.Expect(limited).To(BeTrue())
				return test.err
			})
			u.Expect(done).To(Equal(test.done))
			u.Expect(u.requeued()).To(Equal(test.requeued))
			failing, _ := u.memory.failing("a", u.Now, &u.Timing)
			u.Expect(failing).To(Equal(test.failing))
		})
	}
}

// A pass that cannot write the slots is repeated soon if another manager has changed them, and fails otherwise.
func TestPassWithoutSlots(t *testing.T) {
	timing := DefaultTiming()
	for name, test := range map[string]struct {
		err      error
		requeued time.Duration
	}{
		"a conflict":                 {errConflict, timing.RetryStale},
		"another one was created":    {errExists, timing.RetryStale},
		"it was deleted":             {errNotFound, timing.RetryStale},
		"a failure, with a back-off": {err: errInternal},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, interceptor.Funcs{})
			u.planned.Report.Done = 3
			result, err := u.endWithoutSlots(test.err)
			u.Expect(result).To(Equal(ctrl.Result{RequeueAfter: test.requeued}))
			u.Expect(err != nil).To(Equal(test.requeued == 0))
			u.Expect(u.Fleet.View().Upgrades).To(HaveField("Done", 3), "the report is published")
		})
	}
}

// A pass before the assessment of all nodes comes again when it is due.
func TestPassBeforeItIsDue(t *testing.T) {
	u := newUnit(t, interceptor.Funcs{})
	entry := u.managed("a")
	entry.BasisVersion++
	result, err := u.run(u.ctx)
	u.Expect(err).NotTo(HaveOccurred())
	u.Expect(result.RequeueAfter).To(Equal(u.Timing.Assessment))
	u.Expect(u.Fleet.View().Upgrades).To(BeNil(), "nothing is reported")
}

// While all nodes are at rest, nothing is remembered but the annotations that were replaced.
func TestMemoryAtRest(t *testing.T) {
	u := newUnit(t, interceptor.Funcs{})
	u.Reconciler.memory = remembering(&u.Timing, u.Now)
	u.managed("stays")
	u.Fleet.Get("stays").Resting = &upgrade.Resting{Name: "stays"}
	u.Reconciler.memory.mayHaveSlots = false
	entry := *u.Fleet.Get("stays")
	u.Fleet.Set(&entry)
	result, err := u.Reconcile(u.ctx, ctrl.Request{})
	u.Expect(err).NotTo(HaveOccurred())
	u.Expect(result).To(BeZero())
	for what, size := range u.Remembered() {
		u.Expect(size).To(Equal(map[string]int{"replaced": 1}[what]), what)
	}
	u.Expect(u.memory.replaced).To(HaveKey("stays"))
}

// DefaultTiming has the delays that the documentation names.
func TestDefaultTiming(t *testing.T) {
	timing := DefaultTiming()
	NewWithT(t).Expect(timing).To(Equal(Timing{
		Delays: timing.Delays, FirstEviction: 5 * time.Second, LastEviction: 30 * time.Second, FirstPoll: 2 * time.Second,
		LastPoll: 15 * time.Second, RetryBusy: 30 * time.Second, KeepAnswer: 10 * time.Minute, Deadline: 5 * time.Second,
		FirstRetryFailed: 10 * time.Minute, LastRetryFailed: 3 * time.Hour,
	}))
	NewWithT(t).Expect(timing.LastRetry).To(Equal(30 * time.Second))
}

// node is a Node named a.
func node(change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a"}}
	if change != nil {
		change(n)
	}
	return n
}
