package statuswriter

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
)

// A status as the API server returns it is the writer's own, and one that another client has changed is not.
func TestWrote(t *testing.T) {
	f := newFixture(t)
	status := counted(1, v1.StateNotReady)
	status.Conditions = []metav1.Condition{{
		Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Starting",
		LastTransitionTime: metav1.NewTime(now.Add(5 * time.Millisecond)),
	}}
	status.Operands = []v1.OperandStatus{}
	if f.writer.Wrote(f.read()) {
		t.Error("a status that was not written is its own")
	}
	if wrote, _ := f.write(status); !wrote || !f.writer.Wrote(f.read()) {
		t.Errorf("wrote %t; its own status is another's", wrote)
	}
	for name, change := range map[string]func(*v1.ClusterPolicyStatus){
		"emptied":      func(s *v1.ClusterPolicyStatus) { *s = v1.ClusterPolicyStatus{} },
		"no condition": func(s *v1.ClusterPolicyStatus) { s.Conditions = nil },
		"a message":    func(s *v1.ClusterPolicyStatus) { s.Conditions[0].Message = "x" },
		"the state":    func(s *v1.ClusterPolicyStatus) { s.State = v1.StateReady },
	} {
		policy := f.read()
		if change(&policy.Status); f.writer.Wrote(policy) {
			t.Errorf("%s: another client's status is its own", name)
		}
	}
	policy := f.read()
	if policy.UID = "another"; f.writer.Wrote(policy) {
		t.Error("the status of another policy is its own")
	}
}

// DriverWriter remembers its own statuses as Writer does.
func TestDriverWrote(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object := &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(object).WithStatusSubresource(object).Build()
	w := NewDriverWriter(c, clocktesting.NewFakeClock(now), DefaultTiming())
	read := func() *v1alpha1.NVIDIADriver {
		found := &v1alpha1.NVIDIADriver{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "a"}, found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	if w.Wrote(read()) {
		t.Error("a status that was not written is its own")
	}
	if _, err := w.Write(t.Context(), read(), v1alpha1.NVIDIADriverStatus{State: v1alpha1.StateReady}); err != nil {
		t.Fatal(err)
	}
	if !w.Wrote(read()) {
		t.Error("its own status is another's")
	}
	found := read()
	if found.Status = (v1alpha1.NVIDIADriverStatus{}); w.Wrote(found) {
		t.Error("another client's status is its own")
	}
}

// A client that empties the status of a ready policy again and again makes one write a second at most.
func TestAForeignStatusIsReplacedOnceASecond(t *testing.T) {
	f := newFixture(t)
	ready := counted(9, v1.StateReady)
	if wrote, _ := f.write(ready); !wrote {
		t.Fatal("the status is not written")
	}
	empty := func() {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":null}`))
		if err := f.client.Status().Patch(t.Context(), f.read(), patch); err != nil {
			t.Fatal(err)
		}
	}
	empty()
	if wrote, wait := f.write(ready); wrote || wait != time.Second {
		t.Errorf("wrote %t, waits %s; want a second", wrote, wait)
	}
	f.clock.SetTime(f.clock.Now().Add(time.Second))
	if wrote, _ := f.write(ready); !wrote {
		t.Error("the status is not written again")
	}
	empty()
	f.clock.SetTime(f.clock.Now().Add(time.Minute))
	if wrote, _ := f.write(ready); !wrote {
		t.Error("the status is not written again at once after a minute")
	}
}

// acceptsAll is a client of an API server that accepts each write and keeps nothing.
func acceptsAll(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return nil },
		SubResourceUpdate: func(
			context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption,
		) error {
			return nil
		},
		SubResourcePatch: func(
			context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption,
		) error {
			return nil
		},
	}).Build()
}

// Policies that are created, reported and deleted again and again stay in memory up to a bound.
func TestTheMemoryOfPoliciesIsBounded(t *testing.T) {
	c, clock := acceptsAll(t), clocktesting.NewFakePassiveClock(now)
	w := New(c, clock, events.NewRecorder(c, clock, func(string) {}), nil, DefaultTiming())
	for i := range 100 {
		policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: types.UID(strconv.Itoa(i))}}
		if _, err := w.Write(t.Context(), policy, counted(1, v1.StateNotReady)); err != nil {
			t.Fatal(err)
		}
		if n, own, want := len(w.last), len(w.own.digests), i%16+1; n != want || own != want {
			t.Fatalf("%d policies: %d writes and %d statuses are in memory", i+1, n, own)
		}
	}
}

// The same holds for NVIDIADriver objects.
func TestTheMemoryOfDriversIsBounded(t *testing.T) {
	w := NewDriverWriter(acceptsAll(t), clocktesting.NewFakePassiveClock(now), DefaultTiming())
	for i := range 1100 {
		driver := &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: types.UID(strconv.Itoa(i))}}
		if _, err := w.Write(t.Context(), driver, v1alpha1.NVIDIADriverStatus{State: v1alpha1.StateReady}); err != nil {
			t.Fatal(err)
		}
		if n, own, want := len(w.last), len(w.own.digests), i%1024+1; n != want || own != want {
			t.Fatalf("%d drivers: %d writes and %d statuses are in memory", i+1, n, own)
		}
	}
}

// The memory of conflicts has the same bound as that of writes.
func TestTheMemoryOfConflictsIsBounded(t *testing.T) {
	w := newFixture(t).writer
	for i := range 100 {
		policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{UID: types.UID(strconv.Itoa(i)), ResourceVersion: "1"}}
		if !w.noteConflict(policy) {
			t.Fatalf("policy %d has no conflict yet", i)
		}
		if len(w.last) != i%16+1 {
			t.Fatalf("%d policies are in memory", len(w.last))
		}
	}
}
