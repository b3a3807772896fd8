package otheroperator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const ownVariable = "OPERATOR_IMAGE"

// env is a Watcher with a fake API server.
type env struct {
	*WithT
	t       *testing.T
	client  client.WithWatch
	clock   *clocktesting.FakeClock
	watcher *Watcher
	// listErr is the API server's answer to lists; nil to answer them.
	listErr        error
	watchErr       error
	watchEnds      bool
	lists, watches atomic.Int32
	reviews        *reviews
}

func newEnv(t *testing.T, objects ...client.Object) *env {
	t.Helper()
	e := &env{WithT: NewWithT(t), t: t, clock: clocktesting.NewFakeClock(begin), reviews: newReviews()}
	e.SetDefaultEventuallyTimeout(time.Minute)
	scheme := runtime.NewScheme()
	e.Expect(errors.Join(corev1.AddToScheme(scheme), v1.AddToScheme(scheme))).To(Succeed())
	e.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := errors.Join(e.listErr, ctx.Err()); err != nil {
				return err
			}
			e.lists.Add(1)
			defer list.SetResourceVersion("7")
			return c.List(ctx, list, options...)
		},
	}).Build()
	e.watcher = New(Options{
		Live: e.client, Watch: e.watch, Reviews: e.reviews, Clock: e.clock, Namespace: "gpu-operator",
		OwnVariable: ownVariable, Timing: DefaultTiming(),
	})
	return e
}

// after advances the clock, lists pods and returns the finding, its message empty for none.
func (e *env) after(d time.Duration, daemonSets ...*appsv1.DaemonSet) Finding {
	e.t.Helper()
	e.clock.Step(d)
	e.Expect(e.watcher.refresh(e.t.Context())).To(Succeed())
	return e.check(daemonSets...)
}

func (e *env) check(daemonSets ...*appsv1.DaemonSet) Finding {
	e.t.Helper()
	byName := map[string]*appsv1.DaemonSet{}
	for _, ds := range daemonSets {
		byName[ds.Name] = ds
	}
	found, err := e.watcher.Track(e.t.Context(), byName)
	e.Expect(err).NotTo(HaveOccurred())
	if found == nil {
		return Finding{}
	}
	return *found
}

// nvidiasPod returns a pod of the Deployment of NVIDIA's chart.
func nvidiasPod(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "nvidia", Name: "gpu-operator-6d5f-x2k", UID: "1",
			Labels: map[string]string{
				"app": "gpu-operator", "app.kubernetes.io/component": "gpu-operator", "pod-template-hash": "6d5f",
			},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "gpu-operator-6d5f", UID: "2", Controller: new(true)},
			},
		},
		Spec: corev1.PodSpec{ServiceAccountName: "gpu-operator", Containers: []corev1.Container{{
			Name: "gpu-operator", Image: "nvcr.io/nvidia/gpu-operator:v26.3.1", Command: []string{"gpu-operator"},
			Env: []corev1.EnvVar{{Name: "OPERATOR_NAMESPACE"}, {Name: "DRIVER_MANAGER_IMAGE"}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func TestPods(t *testing.T) {
	image := func(image string, command ...string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Command = image, command }
	}
	phase := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.Phase = phase }
	}
	deleted := func(after time.Duration) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.DeletionTimestamp, pod.Finalizers = &metav1.Time{Time: begin.Add(after)}, []string{"test"}
		}
	}
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"of the chart":               {want: true},
		"pending":                    {change: phase(corev1.PodPending), want: true},
		"evicted":                    {change: phase(corev1.PodFailed)},
		"completed":                  {change: phase(corev1.PodSucceeded)},
		"ending":                     {change: deleted(30 * time.Second), want: true},
		"deleted on a lost node":     {change: deleted(-time.Second)},
		"by digest, as OLM installs": {change: image("nvcr.io/nvidia/gpu-operator@sha256:0123"), want: true},
		"of a mirror with a port":    {change: image("mirror.local:5000/gpu-operator:v25.10.1"), want: true},
		"of a renamed mirror":        {change: image("mirror.local/nv-operator:1", "/usr/bin/gpu-operator"), want: true},
		"of another program":         {change: image("example.com/console:v1", "console")},
		"of this operator": {change: func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: ownVariable}}
		}},
		"with other labels": {change: func(pod *corev1.Pod) { pod.Labels["app"] = "gpu-operator-upgrade-crd" }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, nvidiasPod(test.change))
			if test.want {
				e.Expect(e.check()).NotTo(BeZero())
				return
			}
			e.Expect(e.check()).To(BeZero())
		})
	}
}

// The message names the Deployment or, without one, the pod.
func TestMessage(t *testing.T) {
	e := newEnv(t)
	e.Expect(e.client.Create(t.Context(), nvidiasPod(nil))).To(Succeed())
	e.Expect(e.check().Message).To(Equal("Deployment gpu-operator in namespace nvidia runs NVIDIA's operator " +
		"(image nvcr.io/nvidia/gpu-operator:v26.3.1): this operator changes nothing until that is gone. Migrate with " +
		"kubectl gpu migrate, as docs/migration.md describes, or stop it with " +
		"kubectl -n nvidia scale deployment gpu-operator --replicas=0; --take-over does not wait for that"))
	for _, withoutDeployment := range []func(*corev1.Pod){
		func(pod *corev1.Pod) { pod.OwnerReferences = nil },
		func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "Job" },
		func(pod *corev1.Pod) {
			delete(pod.Labels, "pod-template-hash")
			pod.OwnerReferences[0].Name = "gpu-operator-"
		},
		func(pod *corev1.Pod) { pod.Labels["pod-template-hash"] = "another" },
	} {
		e = newEnv(t)
		e.Expect(e.client.Create(t.Context(), nvidiasPod(withoutDeployment))).To(Succeed())
		e.Expect(e.check().Message).To(And(HavePrefix("Pod gpu-operator-6d5f-x2k in namespace nvidia "),
			ContainSubstring("stop it with kubectl -n nvidia delete pod gpu-operator-6d5f-x2k;")))
	}
}

// The pod that this project ships is not taken for NVIDIA's.
func TestOwnPod(t *testing.T) {
	e := newEnv(t)
	text, err := os.ReadFile("../../../config/manager/deployment.yaml")
	e.Expect(err).NotTo(HaveOccurred())
	own := &appsv1.Deployment{}
	e.Expect(yaml.Unmarshal(text, own)).To(Succeed())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: "own", Labels: own.Spec.Template.Labels},
		Spec:       own.Spec.Template.Spec,
	}
	pod.Spec.Containers[0].Image = "mirror.example.com/gpu-operator:v1.0.0"
	e.Expect(e.client.Create(t.Context(), pod)).To(Succeed())
	e.Expect(e.check()).To(BeZero())
	pod.Spec.Containers[0].Env = nil
	e.Expect(e.client.Update(t.Context(), pod)).To(Succeed())
	e.Expect(e.after(0)).NotTo(BeZero(), "its environment distinguishes it")
}

// NVIDIA's operator is gone once no pod was found for a time: a Deployment replaces its pods.
func TestGone(t *testing.T) {
	e := newEnv(t)
	e.Expect(e.check()).To(BeZero())
	e.Expect(e.watcher.Events()).NotTo(Receive())
	pod := nvidiasPod(nil)
	e.Expect(e.client.Create(t.Context(), pod)).To(Succeed())
	e.Expect(e.check()).To(BeZero(), "pods are not listed again")
	e.Expect(e.after(30 * time.Second).Key).To(Equal("1"))
	e.Expect(e.watcher.Events()).To(Receive())
	e.Expect(e.client.Delete(t.Context(), pod)).To(Succeed())
	e.Expect(e.after(5 * time.Second).Key).To(Equal("1"))
	e.Expect(e.client.Create(t.Context(), nvidiasPod(func(pod *corev1.Pod) { pod.UID = "9" }))).To(Succeed())
	e.Expect(e.after(4 * time.Second).Key).To(Equal("9"))
	e.Expect(e.watcher.Events()).To(Receive())
	e.Expect(e.client.Delete(t.Context(), pod)).To(Succeed())
	e.Expect(e.after(9 * time.Second).Key).To(Equal("9"))
	e.Expect(e.watcher.Events()).NotTo(Receive())
	e.Expect(e.after(time.Second)).To(BeZero())
	e.Expect(e.watcher.Events()).To(Receive())
}

// Until pods could be listed once, nothing is known. After that, the last answer counts.
func TestFailedLists(t *testing.T) {
	e := newEnv(t)
	e.Expect(e.client.Create(t.Context(), nvidiasPod(nil))).To(Succeed())
	e.listErr = errors.New("injected")
	_, err := e.watcher.Track(t.Context(), nil)
	e.Expect(err).To(MatchError(e.listErr))
	e.listErr = nil
	e.Expect(e.check()).NotTo(BeZero())
	e.listErr = errors.New("injected")
	e.clock.Step(time.Hour)
	e.Expect(e.watcher.refresh(t.Context())).To(MatchError(e.listErr))
	e.Expect(e.check()).NotTo(BeZero())
}

// watch counts the watches.
func (e *env) watch(
	ctx context.Context, list client.ObjectList, options ...client.ListOption,
) (watch.Interface, error) {
	if e.watchErr != nil {
		return nil, e.watchErr
	}
	defer e.watches.Add(1)
	asked := (&client.ListOptions{}).ApplyOptions(options)
	if raw := asked.Raw; raw == nil || !raw.AllowWatchBookmarks || raw.ResourceVersion == "" {
		return nil, fmt.Errorf("a watch that cannot be resumed, or does not begin where the list has ended: %+v", raw)
	}
	if e.watchEnds {
		ended := watch.NewFake()
		ended.Stop()
		return ended, nil
	}
	return e.client.Watch(ctx, list, options...)
}

// Start lists pods when one changes, and only then.
func TestStart(t *testing.T) {
	e := newEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.watcher.Start(ctx) }()
	e.Eventually(e.watches.Load).Should(BeEquivalentTo(1))
	e.clock.Step(time.Hour)
	e.Expect(e.lists.Load()).To(BeEquivalentTo(1), "at rest")
	e.Expect(e.client.Create(t.Context(), nvidiasPod(nil))).To(Succeed())
	e.Eventually(e.watcher.Events()).Should(Receive())
	e.Expect(e.check()).NotTo(BeZero())
	e.Eventually(e.clock.HasWaiters).Should(BeTrue())
	lists := e.lists.Load()
	e.clock.Step(DefaultTiming().FoundInterval)
	e.Eventually(e.lists.Load).Should(BeNumerically(">", lists), "its end may be no event")
	cancel()
	e.Eventually(done).Should(Receive(BeNil()))
	e.Expect(e.watcher.NeedLeaderElection()).To(BeFalse())
}

// A watch that fails, or ends at once, is not retried in a loop.
func TestFailedWatch(t *testing.T) {
	for _, ends := range []bool{false, true} {
		e := newEnv(t)
		e.watchErr, e.watchEnds = errors.New("injected"), ends
		if ends {
			e.watchErr = nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.watcher.Start(ctx) }()
		e.Eventually(e.clock.HasWaiters).Should(BeTrue())
		e.Expect(e.lists.Load()).To(BeEquivalentTo(1))
		e.Expect(e.client.Create(t.Context(), nvidiasPod(nil))).To(Succeed())
		e.clock.Step(30 * time.Second)
		e.Eventually(e.watcher.Events()).Should(Receive())
		cancel()
		e.Eventually(done).Should(Receive(BeNil()))
	}
}

// A watch that reports an error, such as that its version is too old, is followed by a list without a delay.
func TestErrorOfAWatch(t *testing.T) {
	e := newEnv(t)
	expired := watch.NewFakeWithChanSize(1, false)
	expired.Error(&metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired})
	e.watcher.Watch = func(
		ctx context.Context, list client.ObjectList, options ...client.ListOption,
	) (watch.Interface, error) {
		if e.watches.Add(1) > 1 {
			return e.client.Watch(ctx, list, options...)
		}
		return expired, e.client.Create(ctx, nvidiasPod(nil))
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.watcher.Start(ctx) }()
	e.Eventually(e.watcher.Events()).Should(Receive())
	e.Expect(e.check().Key).To(Equal("1"))
	e.Expect(expired.IsStopped()).To(BeTrue())
	cancel()
	e.Eventually(done).Should(Receive(BeNil()))
}

// Watches that report an error each are not followed by lists in a loop.
func TestErrorsOfEachWatch(t *testing.T) {
	e := newEnv(t)
	e.watcher.Watch = func(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
		e.watches.Add(1)
		expired := watch.NewFakeWithChanSize(1, false)
		expired.Error(&metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired})
		return expired, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.watcher.Start(ctx) }()
	// The first error is followed by a list, and the next one by a wait; the errors after a wait likewise.
	for _, lists := range []int32{2, 4, 6} {
		e.Eventually(e.clock.HasWaiters).Should(BeTrue())
		e.Expect(e.lists.Load()).To(Equal(lists))
		e.Expect(e.watches.Load()).To(Equal(lists))
		e.clock.Step(30 * time.Second)
	}
	cancel()
	e.Eventually(done).Should(Receive(BeNil()))
}

// withHash returns a DaemonSet with the annotation of NVIDIA's operator; empty for none.
func withHash(name, hash string) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	if hash != "" {
		ds.Annotations = map[string]string{labels.NVIDIAHash: hash}
	}
	return ds
}

// An annotation of NVIDIA's operator that appears or changes while no pod of it is found counts for ten minutes. What
// it left before does not.
func TestWrites(t *testing.T) {
	type sets = []*appsv1.DaemonSet
	tests := map[string]struct {
		before, after sets
		want          string
	}{
		"nothing":                  {},
		"left behind":              {before: sets{withHash("a", "1")}, after: sets{withHash("a", "1")}},
		"deleted":                  {before: sets{withHash("a", "1")}},
		"removed":                  {before: sets{withHash("a", "1")}, after: sets{withHash("a", "")}},
		"created by this operator": {after: sets{withHash("a", "")}},
		"changed":                  {before: sets{withHash("a", "1")}, after: sets{withHash("a", "2")}, want: "a"},
		"added":                    {before: sets{withHash("a", "")}, after: sets{withHash("a", "1")}, want: "a"},
		"created":                  {after: sets{withHash("a", "1")}, want: "a"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.Expect(e.check(test.before...)).To(BeZero())
			e.clock.Step(time.Minute)
			found := e.check(test.after...)
			if test.want == "" {
				e.Expect(found).To(BeZero())
				return
			}
			e.Expect(found).To(Equal(Finding{
				Key: test.want + " 2026-01-01T00:01:00Z", RecheckAfter: 10 * time.Minute,
				Message: "DaemonSet a in namespace gpu-operator got another annotation nvidia.com/last-applied-hash at " +
					"2026-01-01T00:01:00Z, so NVIDIA's operator is at work, although no pod of it is found: this operator " +
					"changes nothing until 10m0s have passed without that. Stop NVIDIA's operator, or start this operator " +
					"with --take-over",
			}))
			e.clock.Step(9 * time.Minute)
			e.Expect(e.check(test.after...).RecheckAfter).To(Equal(time.Minute))
			e.clock.Step(time.Minute)
			e.Expect(e.check(test.after...)).To(BeZero())
		})
	}
}

// Writes of NVIDIA's operator whose pod is found do not count once it is gone, nor do those before it was found.
func TestExpectedWrites(t *testing.T) {
	e := newEnv(t)
	pod := nvidiasPod(nil)
	e.Expect(e.check(withHash("a", "0"))).To(BeZero())
	e.Expect(e.check(withHash("a", "1")).Key).To(Equal("a 2026-01-01T00:00:00Z"))
	e.Expect(e.client.Create(t.Context(), pod)).To(Succeed())
	e.Expect(e.after(30*time.Second, withHash("a", "2")).Key).To(Equal("1"))
	e.Expect(e.after(5*time.Second, withHash("a", "3"), withHash("b", "1")).Key).To(Equal("1"))
	e.Expect(e.client.Delete(t.Context(), pod)).To(Succeed())
	e.Expect(e.after(10*time.Second, withHash("a", "3"), withHash("b", "1"))).To(BeZero())
}
