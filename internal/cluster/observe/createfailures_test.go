package observe_test

import (
	"context"
	"errors"
	"strings"
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

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
)

// failuresEnv is a CreateFailures with an API server whose Events a test creates.
type failuresEnv struct {
	*WithT
	t         *testing.T
	clock     *clocktesting.FakePassiveClock
	server    client.Client
	lists     int
	listError error
	failures  *observe.CreateFailures
}

func newFailuresEnv(t *testing.T) *failuresEnv {
	t.Helper()
	e := &failuresEnv{WithT: NewWithT(t), t: t, clock: clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))}
	field := func(read func(*corev1.Event) string) client.IndexerFunc {
		return func(object client.Object) []string {
			event, _ := object.(*corev1.Event)
			return []string{read(event)}
		}
	}
	e.server = fake.NewClientBuilder().
		WithIndex(
			&corev1.Event{},
			"involvedObject.kind",
			field(func(e *corev1.Event) string { return e.InvolvedObject.Kind }),
		).
		WithIndex(&corev1.Event{}, "reason", field(func(e *corev1.Event) string { return e.Reason })).
		WithIndex(&corev1.Event{}, "type", field(func(e *corev1.Event) string { return e.Type })).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				e.lists++
				if e.listError != nil {
					return e.listError
				}
				return c.List(ctx, list, options...)
			},
		}).Build()
	e.failures = observe.NewCreateFailures(e.server, "gpu-operator", e.clock)
	return e
}

func (e *failuresEnv) after(d time.Duration) { e.clock.SetTime(e.clock.Now().Add(d)) }

// createEvent creates an Event as the DaemonSet controller does.
func (e *failuresEnv) createEvent(name, message string, change ...func(*corev1.Event)) {
	e.t.Helper()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "gpu-operator", Name: name},
		Reason:         "FailedCreate",
		Message:        message,
		InvolvedObject: corev1.ObjectReference{Kind: "DaemonSet", Name: "driver", UID: "1"},
		LastTimestamp:  metav1.NewTime(e.clock.Now()),
	}
	for _, c := range change {
		c(event)
	}
	e.Expect(e.server.Create(e.t.Context(), event)).To(Succeed())
}

// refresh calls Refresh with one DaemonSet that has this many of ten pods.
func (e *failuresEnv) refresh(pods int32, change ...func(*appsv1.DaemonSet)) (time.Duration, error) {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "driver", UID: "1"}}
	ds.Status.DesiredNumberScheduled, ds.Status.CurrentNumberScheduled = 10, pods
	for _, c := range change {
		c(ds)
	}
	return e.failures.Refresh(e.t.Context(), map[string]*appsv1.DaemonSet{"driver": ds})
}

func TestCreateFailuresAreReadRarely(t *testing.T) {
	e := newFailuresEnv(t)
	e.createEvent(
		"a",
		`Error creating: pods "driver-x7k2p" is forbidden: `+
			`exceeded quota: small, requested: pods=1, used: pods=9, limited: pods=9`,
	)
	e.Expect(e.refresh(10)).To(BeZero())
	e.after(time.Hour)
	e.Expect(e.refresh(10)).To(BeZero(), "no pod is missing, so no Events are listed")
	e.Expect(e.lists).To(BeZero())

	e.createEvent(
		"b",
		`Error creating: pods "driver-9m4cd" is forbidden: `+
			`exceeded quota: small, requested: pods=1, used: pods=9, limited: pods=9`,
	)
	e.Expect(e.refresh(9)).To(Equal(5 * time.Second))
	e.after(4 * time.Second)
	e.Expect(e.refresh(9)).To(Equal(time.Second))
	e.Expect(e.lists).To(BeZero(), "the controller gets some seconds")
	e.Expect(e.failures.Found()).To(BeEmpty())
	e.after(time.Second)
	e.Expect(e.refresh(9)).To(Equal(10 * time.Second))
	e.Expect(e.failures.Found()).To(Equal(map[string]assess.PodFailure{"driver": {
		Reason: "QuotaExceeded", Message: "exceeded quota: small, requested: pods=1, used: pods=9, limited: pods=9",
	}}))

	found := e.failures.Found()
	e.Expect(e.refresh(9)).To(Equal(10 * time.Second))
	e.Expect(e.failures.Found()).To(Equal(found), "until the next list")

	var pauses []time.Duration
	for range 12 {
		wait, err := e.refresh(9)
		e.Expect(err).NotTo(HaveOccurred())
		pauses = append(pauses, wait)
		e.after(wait)
	}
	e.Expect(e.lists).To(Equal(12))
	e.Expect(pauses[9:]).To(HaveEach(time.Hour), "one list an hour in the end")

	e.Expect(e.refresh(10)).To(BeZero())
	e.Expect(e.failures.Found()).To(BeEmpty(), "all pods exist")
}

func TestCreateFailuresRestartWithEachShortage(t *testing.T) {
	e := newFailuresEnv(t)
	e.Expect(e.refresh(9)).To(Equal(5 * time.Second))
	e.after(time.Minute)
	e.Expect(e.refresh(9)).To(Equal(10 * time.Second))
	e.Expect(e.refresh(5)).To(Equal(5*time.Second), "more pods are missing")
	e.Expect(e.refresh(5, func(ds *appsv1.DaemonSet) { ds.Generation = 2 })).To(
		BeZero(),
		"the status is of an older generation",
	)
	e.Expect(e.refresh(5, func(ds *appsv1.DaemonSet) {
		ds.DeletionTimestamp = &metav1.Time{
			Time: e.clock.Now(),
		}
	})).To(BeZero())
	e.Expect(e.lists).To(Equal(1))
}

// On large clusters it takes longer until all pods are created.
func TestCreateFailuresOfLargeClustersAreReadLater(t *testing.T) {
	for nodes, want := range map[int32]time.Duration{
		99: 5 * time.Second, 100: 7 * time.Second, 1000: 25 * time.Second, 5000: 30 * time.Second,
	} {
		e := newFailuresEnv(t)
		many := func(ds *appsv1.DaemonSet) { ds.Status.DesiredNumberScheduled = nodes }
		e.Expect(e.refresh(nodes-1, many)).To(Equal(want), "%d nodes", nodes)
	}
}

func TestCreateFailuresThatCannotBeRead(t *testing.T) {
	e := newFailuresEnv(t)
	e.listError = errors.New("events is forbidden")
	_, err := e.refresh(9)
	e.Expect(err).NotTo(HaveOccurred())
	e.after(5 * time.Second)
	wait, err := e.refresh(9)
	e.Expect(err).To(MatchError("listing Events of DaemonSets: events is forbidden"))
	e.Expect(wait).To(Equal(10*time.Second), "the retry has a delay")
	e.Expect(e.failures.Found()).To(BeEmpty())
}

// The messages are those of real API servers.
func TestCreateFailureReasons(t *testing.T) {
	const forbidden = `Error creating: pods "driver-a" is forbidden: `
	old := func(e *corev1.Event) { e.LastTimestamp = metav1.NewTime(e.LastTimestamp.Add(-time.Hour)) }
	tests := map[string]struct {
		message string
		change  func(*corev1.Event)
		want    assess.PodFailure
	}{
		"a quota that requires limits": {
			message: forbidden + `failed quota: small: must specify limits.cpu for: nvidia-driver-ctr`,
			want: assess.PodFailure{
				Reason:  "QuotaExceeded",
				Message: "failed quota: small: must specify limits.cpu for: nvidia-driver-ctr",
			},
		},
		"a cluster that requires a quota for the priority class": {
			message: `Error creating: insufficient quota to match these scopes: ` +
				`[{PriorityClass In [system-node-critical system-cluster-critical]}]`,
			want: assess.PodFailure{
				Reason: "QuotaExceeded",
				Message: "insufficient quota to match these scopes: " +
					"[{PriorityClass In [system-node-critical system-cluster-critical]}]",
			},
		},
		"Pod Security": {
			message: forbidden + `violates PodSecurity "restricted:latest": privileged ` +
				`(container "nvidia-driver-ctr" must not set securityContext.privileged=true)`,
			want: assess.PodFailure{
				Reason: "PodSecurityDenied",
				Message: `violates PodSecurity "restricted:latest": privileged ` +
					`(container "nvidia-driver-ctr" must not set securityContext.privileged=true)`,
			},
		},
		"Pod Security, with more violations than fit into the status": {
			message: forbidden + `violates PodSecurity "restricted:latest": ` + strings.Repeat("x", 200),
			want: assess.PodFailure{
				Reason:  "PodSecurityDenied",
				Message: `violates PodSecurity "restricted:latest": ` + strings.Repeat("x", 105) + "...",
			},
		},
		"a policy": {
			message: forbidden + `ValidatingAdmissionPolicy 'images' with binding 'images' denied request: ` +
				`not from our registry`,
			want: assess.PodFailure{
				Reason:  "AdmissionDenied",
				Message: "ValidatingAdmissionPolicy 'images' with binding 'images' denied request: not from our registry",
			},
		},
		"a webhook": {
			message: `Error creating: admission webhook "validate.kyverno.svc" denied the request: no hostPath`,
			want: assess.PodFailure{
				Reason:  "AdmissionDenied",
				Message: `admission webhook "validate.kyverno.svc" denied the request: no hostPath`,
			},
		},
		"a webhook that does not answer, repeatedly": {
			message: `(combined from similar events): Error creating: Internal error occurred: ` +
				`failed calling webhook "a.b": connection refused`,
			want: assess.PodFailure{
				Reason: "AdmissionDenied",
				Message: `Internal error occurred: ` +
					`failed calling webhook "a.b": connection refused`,
			},
		},
		"another cause": {
			message: forbidden + `error looking up service account gpu-operator/nvidia-driver: ` +
				`serviceaccount "nvidia-driver" not found`,
			want: assess.PodFailure{
				Reason: "FailedCreate",
				Message: `error looking up service account gpu-operator/nvidia-driver: ` +
					`serviceaccount "nvidia-driver" not found`,
			},
		},
		"a stale Event":     {message: "Error creating: x", change: old},
		"of another object": {message: "Error creating: x", change: func(e *corev1.Event) { e.InvolvedObject.UID = "2" }},
		"of another kind": {
			message: "Error creating: x",
			change:  func(e *corev1.Event) { e.InvolvedObject.Kind = "ReplicaSet" },
		},
		"of another reason": {
			message: "Error creating: x",
			change:  func(e *corev1.Event) { e.Reason = "FailedDaemonPod" },
		},
		"in another namespace": {message: "Error creating: x", change: func(e *corev1.Event) { e.Namespace = "other" }},
		"a stale Event that was repeated": {message: "Error creating: x", change: func(e *corev1.Event) {
			e.Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(e.LastTimestamp.Time)}
			old(e)
		}, want: assess.PodFailure{Reason: "FailedCreate", Message: "x"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newFailuresEnv(t)
			e.createEvent("before", "Error creating: an older cause", old)
			if test.change == nil {
				test.change = func(*corev1.Event) {}
			}
			e.createEvent("now", test.message, test.change)
			_, err := e.refresh(9)
			e.Expect(err).NotTo(HaveOccurred())
			e.after(5 * time.Second)
			_, err = e.refresh(9)
			e.Expect(err).NotTo(HaveOccurred())
			if test.want.Reason == "" {
				e.Expect(e.failures.Found()).To(BeEmpty())
				return
			}
			e.Expect(e.failures.Found()).To(HaveKeyWithValue("driver", test.want))
		})
	}
}
