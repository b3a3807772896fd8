package observe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
)

// watchtower looks for failures at an API server whose Events the test writes.
type watchtower struct {
	*WithT
	t        *testing.T
	clock    *clocktesting.FakePassiveClock
	server   client.Client
	lists    int
	refuses  error
	failures *observe.CreateFailures
}

func newWatchtower(t *testing.T) *watchtower {
	t.Helper()
	w := &watchtower{WithT: NewWithT(t), t: t, clock: clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))}
	field := func(read func(*corev1.Event) string) client.IndexerFunc {
		return func(object client.Object) []string {
			event, _ := object.(*corev1.Event)
			return []string{read(event)}
		}
	}
	w.server = fake.NewClientBuilder().
		WithIndex(&corev1.Event{}, "involvedObject.kind", field(func(e *corev1.Event) string { return e.InvolvedObject.Kind })).
		WithIndex(&corev1.Event{}, "reason", field(func(e *corev1.Event) string { return e.Reason })).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			w.lists++
			if w.refuses != nil {
				return w.refuses
			}
			return c.List(ctx, list, options...)
		}}).Build()
	w.failures = observe.NewCreateFailures(w.server, "gpu-operator", w.clock)
	return w
}

func (w *watchtower) after(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// says has the DaemonSet controller write an Event.
func (w *watchtower) says(name, message string, change ...func(*corev1.Event)) {
	w.t.Helper()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: name}, Reason: "FailedCreate", Message: message,
		InvolvedObject: corev1.ObjectReference{Kind: "DaemonSet", Name: "driver", UID: "1"}, LastTimestamp: metav1.NewTime(w.clock.Now()),
	}
	for _, c := range change {
		c(event)
	}
	w.Expect(w.server.Create(w.t.Context(), event)).To(Succeed())
}

// look looks at one DaemonSet that has so many of ten pods.
func (w *watchtower) look(pods int32, change ...func(*appsv1.DaemonSet)) (time.Duration, error) {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "driver", UID: "1"}}
	ds.Status.DesiredNumberScheduled, ds.Status.CurrentNumberScheduled = 10, pods
	for _, c := range change {
		c(ds)
	}
	return w.failures.Look(w.t.Context(), map[string]*appsv1.DaemonSet{"driver": ds})
}

func TestCreateFailuresAreLookedForSeldom(t *testing.T) {
	w := newWatchtower(t)
	w.says("a", `Error creating: pods "driver-x7k2p" is forbidden: exceeded quota: small, requested: pods=1, used: pods=9, limited: pods=9`)
	w.Expect(w.look(10)).To(BeZero())
	w.after(time.Hour)
	w.Expect(w.look(10)).To(BeZero(), "nothing is missing, so nobody asks")
	w.Expect(w.lists).To(BeZero())

	w.says("b", `Error creating: pods "driver-9m4cd" is forbidden: exceeded quota: small, requested: pods=1, used: pods=9, limited: pods=9`)
	w.Expect(w.look(9)).To(Equal(5 * time.Second))
	w.after(4 * time.Second)
	w.Expect(w.look(9)).To(Equal(time.Second))
	w.Expect(w.lists).To(BeZero(), "its controller gets some seconds")
	w.Expect(w.failures.Found()).To(BeEmpty())
	w.after(time.Second)
	w.Expect(w.look(9)).To(Equal(10 * time.Second))
	w.Expect(w.failures.Found()).To(Equal(map[string]assess.CreateFailure{"driver": {
		Reason: "QuotaExceeded", Message: "exceeded quota: small, requested: pods=1, used: pods=9, limited: pods=9",
	}}))

	var pauses []time.Duration
	for range 12 {
		wait, err := w.look(9)
		w.Expect(err).NotTo(HaveOccurred())
		pauses = append(pauses, wait)
		w.after(wait)
	}
	w.Expect(w.lists).To(Equal(12))
	w.Expect(pauses[9:]).To(HaveEach(time.Hour), "at rest one list an hour")

	w.Expect(w.look(10)).To(BeZero())
	w.Expect(w.failures.Found()).To(BeEmpty(), "it has its pod now")
}

func TestCreateFailuresStartAnewWithEachLack(t *testing.T) {
	w := newWatchtower(t)
	w.Expect(w.look(9)).To(Equal(5 * time.Second))
	w.after(time.Minute)
	w.Expect(w.look(9)).To(Equal(10 * time.Second))
	w.Expect(w.look(5)).To(Equal(5*time.Second), "more nodes have come")
	w.Expect(w.look(5, func(ds *appsv1.DaemonSet) { ds.Generation = 2 })).To(BeZero(), "its status is of the old generation")
	w.Expect(w.look(5, func(ds *appsv1.DaemonSet) { ds.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} })).To(BeZero())
	w.Expect(w.lists).To(Equal(1))
}

// Where a thousand pods are to be made, some of them are missing for a while though nothing is wrong.
func TestCreateFailuresOfManyAreLookedForLater(t *testing.T) {
	for nodes, want := range map[int32]time.Duration{
		99: 5 * time.Second, 100: 7 * time.Second, 1000: 25 * time.Second, 5000: 30 * time.Second,
	} {
		w := newWatchtower(t)
		many := func(ds *appsv1.DaemonSet) { ds.Status.DesiredNumberScheduled = nodes }
		w.Expect(w.look(nodes-1, many)).To(Equal(want), "%d nodes", nodes)
	}
}

func TestCreateFailuresThatCannotBeRead(t *testing.T) {
	w := newWatchtower(t)
	w.refuses = errors.New("events is forbidden")
	_, err := w.look(9)
	w.Expect(err).NotTo(HaveOccurred())
	w.after(5 * time.Second)
	wait, err := w.look(9)
	w.Expect(err).To(MatchError("listing Events of DaemonSets: events is forbidden"))
	w.Expect(wait).To(Equal(10*time.Second), "it is not asked again at once")
	w.Expect(w.failures.Found()).To(BeEmpty())
}

// TestCreateFailureReasons has messages as API servers write them.
func TestCreateFailureReasons(t *testing.T) {
	old := func(e *corev1.Event) { e.LastTimestamp = metav1.NewTime(e.LastTimestamp.Add(-time.Hour)) }
	tests := map[string]struct {
		message string
		change  func(*corev1.Event)
		want    assess.CreateFailure
	}{
		"quota that wants limits": {
			message: `Error creating: pods "driver-a" is forbidden: failed quota: small: must specify limits.cpu for: nvidia-driver-ctr`,
			want:    assess.CreateFailure{Reason: "QuotaExceeded", Message: "failed quota: small: must specify limits.cpu for: nvidia-driver-ctr"},
		},
		"Pod Security": {
			message: `Error creating: pods "driver-a" is forbidden: violates PodSecurity "restricted:latest": privileged (container "nvidia-driver-ctr" must not set securityContext.privileged=true)`,
			want: assess.CreateFailure{
				Reason:  "PodSecurityDenied",
				Message: `violates PodSecurity "restricted:latest": privileged (container "nvidia-driver-ctr" must not set securityContext.privileged=true)`,
			},
		},
		"a policy": {
			message: `Error creating: pods "driver-a" is forbidden: ValidatingAdmissionPolicy 'images' with binding 'images' denied request: not from our registry`,
			want:    assess.CreateFailure{Reason: "AdmissionDenied", Message: "ValidatingAdmissionPolicy 'images' with binding 'images' denied request: not from our registry"},
		},
		"a webhook": {
			message: `Error creating: admission webhook "validate.kyverno.svc" denied the request: no hostPath`,
			want:    assess.CreateFailure{Reason: "AdmissionDenied", Message: `admission webhook "validate.kyverno.svc" denied the request: no hostPath`},
		},
		"a webhook that does not answer, again and again": {
			message: `(combined from similar events): Error creating: Internal error occurred: failed calling webhook "a.b": connection refused`,
			want:    assess.CreateFailure{Reason: "AdmissionDenied", Message: `Internal error occurred: failed calling webhook "a.b": connection refused`},
		},
		"another cause": {
			message: `Error creating: pods "driver-a" is forbidden: error looking up service account gpu-operator/nvidia-driver: serviceaccount "nvidia-driver" not found`,
			want:    assess.CreateFailure{Reason: "FailedCreate", Message: `error looking up service account gpu-operator/nvidia-driver: serviceaccount "nvidia-driver" not found`},
		},
		"one of long ago":      {message: "Error creating: x", change: old},
		"of another object":    {message: "Error creating: x", change: func(e *corev1.Event) { e.InvolvedObject.UID = "2" }},
		"of another kind":      {message: "Error creating: x", change: func(e *corev1.Event) { e.InvolvedObject.Kind = "ReplicaSet" }},
		"of another reason":    {message: "Error creating: x", change: func(e *corev1.Event) { e.Reason = "FailedDaemonPod" }},
		"in another namespace": {message: "Error creating: x", change: func(e *corev1.Event) { e.Namespace = "other" }},
		"of long ago, and seen again": {message: "Error creating: x", change: func(e *corev1.Event) {
			e.Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(e.LastTimestamp.Time)}
			old(e)
		}, want: assess.CreateFailure{Reason: "FailedCreate", Message: "x"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWatchtower(t)
			w.says("before", "Error creating: an older cause", old)
			if test.change == nil {
				test.change = func(*corev1.Event) {}
			}
			w.says("now", test.message, test.change)
			_, err := w.look(9)
			w.Expect(err).NotTo(HaveOccurred())
			w.after(5 * time.Second)
			_, err = w.look(9)
			w.Expect(err).NotTo(HaveOccurred())
			if test.want.Reason == "" {
				w.Expect(w.failures.Found()).To(BeEmpty())
				return
			}
			w.Expect(w.failures.Found()).To(HaveKeyWithValue("driver", test.want))
		})
	}
}
