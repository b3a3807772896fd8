package observe_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
)

// startsEnv is a StartFailures with an API server whose Events a test creates.
type startsEnv struct {
	*failuresEnv
	starts *observe.StartFailures
}

func newStartsEnv(t *testing.T) *startsEnv {
	t.Helper()
	e := &startsEnv{failuresEnv: newFailuresEnv(t)}
	e.restart()
	return e
}

// restart makes a StartFailures without state, as a restart of the operator does.
func (e *startsEnv) restart() { e.starts = observe.NewStartFailures(e.server, "gpu-operator", e.clock) }

// refresh calls Refresh with one DaemonSet whose pods exist, this many of which are not ready.
func (e *startsEnv) refresh(unready int32, change ...func(*appsv1.DaemonSet)) time.Duration {
	e.t.Helper()
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "driver", UID: "1"}}
	ds.Status.CurrentNumberScheduled, ds.Status.NumberReady = 10, 10-unready
	for _, c := range change {
		c(ds)
	}
	wait, err := e.starts.Refresh(e.t.Context(), map[string]*appsv1.DaemonSet{"driver": ds})
	e.Expect(err).NotTo(HaveOccurred())
	return wait
}

// kubeletEvent creates an Event as the kubelet does.
func (e *startsEnv) kubeletEvent(name, pod, reason, message string, change ...func(*corev1.Event)) {
	e.t.Helper()
	e.createEvent(name, message, append([]func(*corev1.Event){func(event *corev1.Event) {
		event.Reason, event.Type = reason, corev1.EventTypeWarning
		event.InvolvedObject = corev1.ObjectReference{Kind: "Pod", Name: pod, UID: types.UID(pod)}
	}}, change...)...)
}

// checked starts with all pods ready, so that the next list is due 20 s after one is not.
func (e *startsEnv) checked() { e.Expect(e.refresh(0)).To(BeZero()) }

func TestStartFailuresByReason(t *testing.T) {
	for reason, want := range map[string]assess.PodFailure{
		"FailedMount":            {Reason: "FailedMount", Message: `configmap "x" not found`},
		"FailedMapVolume":        {Reason: "FailedMount", Message: `configmap "x" not found`},
		"FailedAttachVolume":     {Reason: "FailedMount", Message: `configmap "x" not found`},
		"FailedCreatePodSandBox": {Reason: "FailedCreatePodSandBox", Message: `configmap "x" not found`},
		"NetworkNotReady":        {Reason: "FailedCreatePodSandBox", Message: `configmap "x" not found`},
		"Unhealthy":              {},
		"BackOff":                {},
	} {
		t.Run(reason, func(t *testing.T) {
			e := newStartsEnv(t)
			e.checked()
			e.kubeletEvent("a", "p", reason, `configmap "x" not found`)
			e.refresh(1)
			e.after(20 * time.Second)
			e.refresh(1)
			found := e.starts.Found()
			e.Expect(found["p"]).To(Equal(want))
			e.Expect(found).To(HaveLen(map[bool]int{true: 1}[want.Reason != ""]))
		})
	}
}

func TestStartFailuresAreReadRarely(t *testing.T) {
	e := newStartsEnv(t)
	e.checked()
	e.Expect(e.refresh(0)).To(BeZero())
	e.Expect(e.lists).To(BeZero(), "all pods are ready, so no Events are listed")
	e.kubeletEvent("a", "p", "FailedMount", `MountVolume.SetUp failed for volume "c" : configmap "x" not found`)
	e.Expect(e.refresh(1)).To(Equal(20 * time.Second))
	e.after(19 * time.Second)
	e.Expect(e.refresh(1)).To(Equal(time.Second))
	e.Expect(e.lists).To(BeZero(), "the kubelet gets some seconds")
	e.after(time.Second)
	var pauses []time.Duration
	for range 5 {
		wait := e.refresh(1)
		pauses = append(pauses, wait)
		e.after(wait)
	}
	e.Expect(pauses).To(Equal([]time.Duration{
		40 * time.Second, 80 * time.Second, 2 * time.Minute, 2 * time.Minute, 2 * time.Minute,
	}))
	e.Expect(e.lists).To(Equal(5))
	e.Expect(e.refresh(0)).To(BeZero())
	e.Expect(e.starts.Found()).To(BeEmpty(), "all pods are ready")
	e.Expect(e.refresh(1)).To(Equal(20*time.Second), "a later failure starts anew")
	e.Expect(e.lists).To(Equal(5))
}

func TestStartFailuresAreReadSoonIfMorePodsFail(t *testing.T) {
	e := newStartsEnv(t)
	e.checked()
	e.refresh(3)
	e.after(20 * time.Second)
	e.Expect(e.refresh(3)).To(Equal(40 * time.Second))
	e.after(5 * time.Second)
	e.Expect(e.refresh(2)).To(Equal(35*time.Second), "fewer fail")
	e.after(5 * time.Second)
	e.Expect(e.refresh(3)).To(Equal(20*time.Second), "more fail than in the call before")
	e.after(5 * time.Second)
	e.Expect(e.refresh(4)).To(Equal(15*time.Second), "more fail, but the list is due sooner")
	e.after(15 * time.Second)
	e.Expect(e.refresh(4)).To(Equal(40*time.Second), "the pauses start anew")
	e.Expect(e.lists).To(Equal(2))
}

func TestStartFailuresAreReadSoonAfterAChange(t *testing.T) {
	e := newStartsEnv(t)
	e.checked()
	e.refresh(1)
	e.after(20 * time.Second)
	e.Expect(e.refresh(1)).To(Equal(40 * time.Second))
	changed := func(ds *appsv1.DaemonSet) { ds.Generation = 2 }
	e.Expect(e.refresh(1, changed)).To(Equal(20 * time.Second))
	e.after(20 * time.Second)
	e.Expect(e.refresh(1, changed)).To(Equal(40 * time.Second))
	e.Expect(e.lists).To(Equal(2))
}

// What the operator reported before a restart must not vanish for 20 s and come back.
func TestStartFailuresAreReadAtOnceAfterARestart(t *testing.T) {
	e := newStartsEnv(t)
	e.kubeletEvent("a", "p", "FailedMount", "not found")
	e.Expect(e.refresh(1)).To(Equal(40 * time.Second))
	e.Expect(e.starts.Found()).To(HaveKey(types.UID("p")))
	e.restart()
	e.checked()
	e.refresh(1)
	e.Expect(e.lists).To(Equal(1), "only in the first call")
}

func TestStartFailuresCountsPodsOfTheStack(t *testing.T) {
	e := newStartsEnv(t)
	e.checked()
	e.Expect(e.refresh(1, func(ds *appsv1.DaemonSet) { ds.DeletionTimestamp = &metav1.Time{Time: e.clock.Now()} })).
		To(BeZero(), "the DaemonSet is being deleted")
	e.Expect(e.refresh(1, func(ds *appsv1.DaemonSet) { ds.Status.CurrentNumberScheduled = 9 })).
		To(BeZero(), "the pod does not exist")
	e.Expect(e.refresh(0, func(ds *appsv1.DaemonSet) { ds.Status.CurrentNumberScheduled = 8 })).
		To(BeZero(), "more pods are ready than are counted")
}

func TestStartFailuresTakesTheNewestEvent(t *testing.T) {
	e := newStartsEnv(t)
	old := func(by time.Duration) func(*corev1.Event) {
		return func(event *corev1.Event) { event.LastTimestamp = metav1.NewTime(e.clock.Now().Add(-by)) }
	}
	e.kubeletEvent("a", "p", "FailedMount", "first", old(time.Minute))
	e.kubeletEvent("b", "p", "FailedCreatePodSandBox", "second", old(time.Second))
	e.kubeletEvent("c", "p", "FailedMount", "third", old(2*time.Second))
	e.kubeletEvent("d", "stale", "FailedMount", "of a former failure", old(5*time.Minute+time.Second))
	e.kubeletEvent("e", "recent", "FailedMount", "recent", old(5*time.Minute))
	e.kubeletEvent("f", "normal", "FailedMount", "no warning", func(event *corev1.Event) {
		event.Type = corev1.EventTypeNormal
	})
	e.kubeletEvent("g", "other", "FailedMount", "another kind", func(event *corev1.Event) {
		event.InvolvedObject.Kind = "DaemonSet"
	})
	e.kubeletEvent("h", "user", "FailedMount", "another namespace", func(event *corev1.Event) {
		event.Namespace = "default"
	})
	e.refresh(1)
	e.Expect(e.starts.Found()).To(Equal(map[types.UID]assess.PodFailure{
		"p": {Reason: "FailedCreatePodSandBox", Message: "second"}, "recent": {Reason: "FailedMount", Message: "recent"},
	}))
}

func TestStartFailuresThatCannotBeRead(t *testing.T) {
	e := newStartsEnv(t)
	e.kubeletEvent("a", "p", "FailedMount", "not found")
	e.refresh(1)
	known := e.starts.Found()
	e.listError = errors.New("events is forbidden")
	e.after(40 * time.Second)
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "driver", UID: "1"}}
	ds.Status.CurrentNumberScheduled = 1
	wait, err := e.starts.Refresh(t.Context(), map[string]*appsv1.DaemonSet{"driver": ds})
	e.Expect(err).To(MatchError("listing Events of pods: events is forbidden"))
	e.Expect(wait).To(Equal(80*time.Second), "the retry has a delay")
	e.Expect(e.starts.Found()).To(Equal(known))
}
