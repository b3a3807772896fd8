package statuswriter

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

var now = time.Unix(1_000_000, 0)

func TestSignificant(t *testing.T) {
	type status = v1.ClusterPolicyStatus
	base := v1.ClusterPolicyStatus{
		State: v1.StateNotReady, ObservedGeneration: 1,
		Conditions: []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionFalse, Reason: "OperandNotReady", Message: "2 of 3"},
		},
		Operands: []v1.OperandStatus{
			{Name: "driver", State: v1.OperandProgressing, Ready: 2},
			{
				Name:    "dcgm-exporter",
				State:   v1.OperandWaiting,
				Reason:  "ReferenceMissing",
				Message: "there is no ConfigMap metrics",
			},
			{Name: "mig-manager", State: v1.OperandDegraded, Reason: "OperandFailed", Message: "fails on 1 of 3 nodes"},
		},
		NodePools: []v1.NodePoolStatus{
			{Name: "team-a", Reason: "ReferenceMissing", Message: "there is no ConfigMap plugin"},
			{Name: "team-b", Reason: "Starting", Message: "1 of 3 nodes are ready"},
		},
		NodeSummary: &v1.NodeSummary{Total: 3, Ready: 2},
		Upgrade:     &v1.UpgradeStatus{Pending: 2, Message: "a (UpgradeBlocked): 2 pods are blocked: pod n/p"},
		Nodes: []v1.NodeStatus{
			{Name: "a", Stage: v1.StageDriver, Operand: "driver", Reason: "CrashLoopBackOff", Message: "1"},
			{
				Name:    "d",
				Stage:   v1.StageDriver,
				Operand: "driver",
				Reason:  "ReferenceMissing",
				Message: "there is no Secret environment",
			},
			{Name: "b", Stage: v1.StageDriver, Operand: "driver", Reason: "Starting"},
			{Name: "c", Ready: true, Stage: v1.StageValidated},
		},
	}
	tests := map[string]struct {
		change func(*status)
		want   bool
	}{
		"nothing":                {change: func(*status) {}},
		"counters":               {change: func(s *status) { s.NodeSummary.Ready, s.Operands[0].Ready = 3, 3 }},
		"a message":              {change: func(s *status) { s.Conditions[0].Message, s.Nodes[0].Message = "3 of 3", "2" }},
		"a counter of a failure": {change: func(s *status) { s.Operands[2].Message = "fails on 2 of 3 nodes" }},
		"the progress of a pool": {change: func(s *status) { s.NodePools[1].Message = "2 of 3 nodes are ready" }},
		"the progress of a node": {change: func(s *status) {
			s.Nodes[2].Stage, s.Nodes[2].Reason = v1.StageToolkit, "PodMissing"
		}},
		"a node becomes ready":      {change: func(s *status) { s.Nodes[2] = v1.NodeStatus{Name: "b", Ready: true} }},
		"an operand becomes ready":  {change: func(s *status) { s.Operands[0].State = v1.OperandReady }},
		"the progress of upgrades":  {change: func(s *status) { s.Upgrade.Pending, s.Upgrade.Done = 1, 1 }},
		"the pods of an obstacle":   {change: func(s *status) { s.Upgrade.Message = "a (UpgradeBlocked): pod n/p" }},
		"an obstacle has gone":      {change: func(s *status) { s.Upgrade.Message = "" }, want: true},
		"another node is blocked":   {change: func(s *status) { s.Upgrade.Message = "b (UpgradeBlocked): n/q" }, want: true},
		"another obstacle":          {change: func(s *status) { s.Upgrade.Message = "a (UpgradeUncordoned): x" }, want: true},
		"the state":                 {change: func(s *status) { s.State = v1.StateReady }, want: true},
		"the generation":            {change: func(s *status) { s.ObservedGeneration = 2 }, want: true},
		"the reason of a condition": {change: func(s *status) { s.Conditions[0].Reason = "OperandFailed" }, want: true},
		"a missing object is created without the key": {
			change: func(s *status) { s.Operands[1].Message = "ConfigMap metrics has no key a" },
			want:   true,
		},
		"another reason of an operand": {change: func(s *status) { s.Operands[2].Reason = "NotSupportedYet" }, want: true},
		"the missing object of a pool is created": {
			change: func(s *status) { s.NodePools[0].Reason, s.NodePools[0].Message = "", "" },
			want:   true,
		},
		"another object is missing for a pool": {
			change: func(s *status) { s.NodePools[0].Message = "there is no ConfigMap b" },
			want:   true,
		},
		"another object is missing for a node": {
			change: func(s *status) { s.Nodes[1].Message = "there is no Secret b" },
			want:   true,
		},
		"an operand fails":          {change: func(s *status) { s.Operands[0].State = v1.OperandDegraded }, want: true},
		"a node fails":              {change: func(s *status) { s.Nodes[2].Reason = "ImagePullBackOff" }, want: true},
		"a node fails again":        {change: func(s *status) { s.Nodes[0].Operand = "container-toolkit" }, want: true},
		"a node exceeds a deadline": {change: func(s *status) { s.NodeSummary.Degraded = 1 }, want: true},
		"a failure is over":         {change: func(s *status) { s.Nodes[0].Reason = "Starting" }, want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			after := *base.DeepCopy()
			test.change(&after)
			if got := significant(base, after); got != test.want {
				t.Errorf("significant: %v", got)
			}
			if got := significant(after, base); got != test.want {
				t.Errorf("significant the other way round: %v", got)
			}
		})
	}
}

// fixture is a Writer with a fake API server that counts its writes.
type fixture struct {
	t      *testing.T
	client client.Client
	clock  *clocktesting.FakePassiveClock
	writer *Writer
	writes int
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, clock: clocktesting.NewFakePassiveClock(now)}
	policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cp", UID: "u"}}
	f.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(policy).WithStatusSubresource(policy).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(
				ctx context.Context, c client.Client, sub string, o client.Object, options ...client.SubResourceUpdateOption,
			) error {
				f.writes++
				return c.SubResource(sub).Update(ctx, o, options...)
			},
		}).Build()
	catalogue := operand.Catalogue{{Name: "driver", Stage: v1.StageDriver}, {Name: "dcgm"}}
	f.writer = New(f.client, f.clock, events.NewRecorder(f.client, f.clock, func(string) {}), catalogue, DefaultTiming())
	return f
}

func (f *fixture) read() *v1.ClusterPolicy {
	f.t.Helper()
	policy := &v1.ClusterPolicy{}
	if err := f.client.Get(context.Background(), client.ObjectKey{Name: "cp"}, policy); err != nil {
		f.t.Fatal(err)
	}
	return policy
}

// write passes a status for an up-to-date copy to the writer, and returns whether it wrote and the wait.
func (f *fixture) write(status v1.ClusterPolicyStatus) (bool, time.Duration) {
	f.t.Helper()
	before := f.writes
	wait, err := f.writer.Write(context.Background(), f.read(), status)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.writes > before, wait
}

// counted returns the status of a fleet that is large enough for the longest wait.
func counted(ready int32, state v1.State) v1.ClusterPolicyStatus { return countedOf(100, ready, state) }

func countedOf(total, ready int32, state v1.State) v1.ClusterPolicyStatus {
	return v1.ClusterPolicyStatus{State: state, NodeSummary: &v1.NodeSummary{Total: total, Ready: ready}}
}

func degraded(nodes int32) v1.ClusterPolicyStatus {
	return v1.ClusterPolicyStatus{State: v1.StateNotReady, NodeSummary: &v1.NodeSummary{Total: 9, Degraded: nodes}}
}

// A cache that does not contain the last write causes no event when it does.
func TestAStaleCacheIsReadAgainSoon(t *testing.T) {
	f := newFixture(t)
	before := f.read()
	if wrote, _ := f.write(counted(1, v1.StateNotReady)); !wrote {
		t.Fatal("the status is not written")
	}
	wait, err := f.writer.Write(t.Context(), before, counted(9, v1.StateReady))
	if err != nil || wait != 200*time.Millisecond || f.writes != 1 {
		t.Errorf("waits %v, error %v, %d writes", wait, err, f.writes)
	}
}

func TestWriter(t *testing.T) {
	type step struct {
		after  time.Duration
		status v1.ClusterPolicyStatus
		wrote  bool
		wait   time.Duration
	}
	starting, done := v1.StateNotReady, v1.StateReady
	tests := map[string][]step{
		"an unchanged status is not written": {
			{status: counted(1, starting), wrote: true}, {after: time.Hour, status: counted(1, starting)},
		},
		"counters wait ten seconds": {
			{status: counted(1, starting), wrote: true},
			{after: 4 * time.Second, status: counted(2, starting), wait: 6 * time.Second},
			{after: 5 * time.Second, status: counted(3, starting), wait: time.Second},
			{after: time.Second, status: counted(3, starting), wrote: true},
			{after: time.Second, status: counted(4, starting), wait: 9 * time.Second},
		},
		"counters of a small fleet wait a second": {
			{status: countedOf(10, 1, starting), wrote: true}, {status: countedOf(10, 2, starting), wait: time.Second},
		},
		"counters wait longer in a larger fleet": {
			{status: countedOf(40, 1, starting), wrote: true}, {status: countedOf(40, 2, starting), wait: 4 * time.Second},
		},
		"counters of the largest fleet wait ten seconds": {
			{status: countedOf(5000, 1, starting), wrote: true}, {status: countedOf(5000, 2, starting), wait: 10 * time.Second},
		},
		"counters of no fleet wait a second": {
			{status: v1.ClusterPolicyStatus{State: starting}, wrote: true},
			{status: v1.ClusterPolicyStatus{State: starting, Namespace: "n"}, wait: time.Second},
		},
		"a significant change is written after a second": {
			{status: counted(1, starting), wrote: true}, {after: time.Second, status: counted(9, done), wrote: true},
		},
		"only that it becomes ready is written within a second": {
			{status: degraded(1), wrote: true},
			{after: 300 * time.Millisecond, status: degraded(2), wait: 700 * time.Millisecond},
			{after: 300 * time.Millisecond, status: counted(9, done), wrote: true},
			{after: 300 * time.Millisecond, status: degraded(1), wait: 700 * time.Millisecond},
			{after: 700 * time.Millisecond, status: degraded(1), wrote: true},
		},
		"a change that is reverted within the wait is not written": {
			{status: counted(1, starting), wrote: true},
			{after: 4 * time.Second, status: counted(2, starting), wait: 6 * time.Second},
			{after: time.Hour, status: counted(1, starting)},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			for i, step := range steps {
				f.clock.SetTime(f.clock.Now().Add(step.after))
				wrote, wait := f.write(step.status)
				if wrote != step.wrote || wait != step.wait {
					t.Fatalf("step %d: wrote %v and waits %v, want %v and %v", i, wrote, wait, step.wrote, step.wait)
				}
			}
		})
	}
}

func TestWriterSkipsStaleCopies(t *testing.T) {
	f := newFixture(t)
	old := f.read()
	if wrote, _ := f.write(counted(1, v1.StateNotReady)); !wrote {
		t.Fatal("did not write")
	}
	f.clock.SetTime(f.clock.Now().Add(time.Hour))
	wait, err := f.writer.Write(context.Background(), old, counted(9, v1.StateReady))
	if err != nil || f.writes != 1 || wait <= 0 {
		t.Errorf("%d writes, waits %v, %v", f.writes, wait, err)
	}
	if wrote, _ := f.write(counted(9, v1.StateReady)); !wrote {
		t.Error("did not write from the current copy")
	}
}

// The order does not depend on which condition was set first.
func TestWriterOrdersConditions(t *testing.T) {
	f := newFixture(t)
	status := counted(1, v1.StateNotReady)
	for _, conditionType := range []string{v1.ConditionUnsupportedFields, v1.ConditionError, v1.ConditionReady} {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: conditionType, Status: metav1.ConditionFalse, Reason: "None",
		})
	}
	if wrote, _ := f.write(status); !wrote {
		t.Fatal("did not write")
	}
	var got []string
	for _, condition := range f.read().Status.Conditions {
		got = append(got, condition.Type)
	}
	if want := []string{v1.ConditionReady, v1.ConditionError, v1.ConditionUnsupportedFields}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWriterConflict(t *testing.T) {
	f := newFixture(t)
	old := f.read()
	changed := f.read()
	changed.Labels = map[string]string{"by": "another-writer"}
	if err := f.client.Update(context.Background(), changed); err != nil {
		t.Fatal(err)
	}
	wait, err := f.writer.Write(context.Background(), old, counted(1, v1.StateNotReady))
	if err != nil || wait != time.Second {
		t.Errorf("waits %v, error %v, want to wait a second for the cache", wait, err)
	}
	if _, err := f.writer.Write(context.Background(), old, counted(1, v1.StateNotReady)); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict with the same version to be an error", err)
	}
	// A write that failed delays no other.
	if wrote, _ := f.write(counted(1, v1.StateNotReady)); !wrote {
		t.Error("waits after a write that failed")
	}
}
