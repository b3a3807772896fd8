package statuswriter

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
)

// The status is written when it has changed, a change of messages alone less often, and not from a stale cache.
func TestDriverWriter(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	stored := &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}
	writes, failure := 0, error(nil)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored).WithStatusSubresource(stored).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string,
			object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
		) error {
			writes++
			if failure != nil {
				return failure
			}
			return c.SubResource(sub).Patch(ctx, object, patch, options...)
		}}).Build()
	clock := clocktesting.NewFakeClock(now)
	w := NewDriverWriter(c, clock, DefaultTiming())
	read := func() *v1alpha1.NVIDIADriver {
		object := &v1alpha1.NVIDIADriver{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "a"}, object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	reason := "Reconciled"
	write := func(
		step string, object *v1alpha1.NVIDIADriver, state v1alpha1.DriverState, message string, delay time.Duration,
		wantWrites int,
	) {
		t.Helper()
		wait, err := w.Write(t.Context(), object, v1alpha1.NVIDIADriverStatus{State: state, Conditions: []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionTrue, Reason: reason, Message: message},
		}})
		if err != nil || wait != delay || writes != wantWrites {
			t.Errorf("%s: wait %s, %d writes, error %v", step, wait, writes, err)
		}
	}
	first := read()
	write("first", first, v1alpha1.StateReady, "1 of 2", 0, 1)
	write("the cache is stale", first, v1alpha1.StateReady, "2 of 2", 200*time.Millisecond, 1)
	write("no change", read(), v1alpha1.StateReady, "1 of 2", 0, 1)
	write("another message", read(), v1alpha1.StateReady, "2 of 2", 10*time.Second, 1)
	reason = "Upgrading"
	write("another reason", read(), v1alpha1.StateReady, "1 of 2", time.Second, 1)
	reason = "Reconciled"
	write("another state", read(), v1alpha1.StateNotReady, "1 of 2", time.Second, 1)
	clock.Step(time.Second)
	write("another state later", read(), v1alpha1.StateNotReady, "1 of 2", 0, 2)
	if got := read().Status.State; got != v1alpha1.StateNotReady {
		t.Errorf("the state is %s", got)
	}
	clock.Step(time.Second)
	before, after := read(), read()
	after.Labels = map[string]string{"a": "b"}
	if err := c.Update(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	write("an object that has changed since it was read", before, v1alpha1.StateReady, "", time.Second, 3)
	failure = errors.New("no answer")
	if _, err := w.Write(t.Context(), read(), v1alpha1.NVIDIADriverStatus{State: v1alpha1.StateReady}); !errors.Is(
		err, failure) {
		t.Errorf("a call that fails: got %v", err)
	}
	failure = nil
	if err := c.Delete(t.Context(), read()); err != nil {
		t.Fatal(err)
	}
	write("a deleted object", &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "2"}},
		v1alpha1.StateReady, "", 0, 5)
}

// A status differs from another in all but the messages, whichever comes first.
func TestDriverStatusDiffers(t *testing.T) {
	type status = v1alpha1.NVIDIADriverStatus
	base := status{State: v1alpha1.StateReady, ObservedGeneration: 1, Conditions: []metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Reconciled", Message: "1 of 2"},
	}}
	for name, test := range map[string]struct {
		change func(*status)
		want   bool
	}{
		"nothing":    {func(*status) {}, false},
		"message":    {func(s *status) { s.Conditions[0].Message = "2 of 2" }, false},
		"state":      {func(s *status) { s.State = v1alpha1.StateNotReady }, true},
		"generation": {func(s *status) { s.ObservedGeneration = 2 }, true},
		"conditions": {func(s *status) { s.Conditions = append(s.Conditions, metav1.Condition{Type: "Error"}) }, true},
		"type":       {func(s *status) { s.Conditions[0].Type = "Error" }, true},
		"status":     {func(s *status) { s.Conditions[0].Status = metav1.ConditionFalse }, true},
		"reason":     {func(s *status) { s.Conditions[0].Reason = "Upgrading" }, true},
	} {
		after := *base.DeepCopy()
		test.change(&after)
		if driverStatusDiffers(base, after) != test.want || driverStatusDiffers(after, base) != test.want {
			t.Errorf("%s: does not differ as wanted: %v", name, test.want)
		}
	}
}
