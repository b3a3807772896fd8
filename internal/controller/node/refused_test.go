package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
)

// The annotations with which a test says when the kubelet wrote the status of a pod, and which subresource that was:
// the fake API server stamps what it stores with its own time.
const (
	writtenAt   = "written-at"
	writtenPart = "written-part"
)

// stampingReader adds the managed fields to pods.
type stampingReader struct{ client.Reader }

func (r stampingReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := r.Reader.List(ctx, list, options...)
	pods, isPods := list.(*corev1.PodList)
	if err != nil || !isPods {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		at, err := time.Parse(time.RFC3339, pod.Annotations[writtenAt])
		if err != nil {
			continue
		}
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "kubelet", Operation: "Update", Subresource: pod.Annotations[writtenPart], APIVersion: "v1",
			Time: new(metav1.NewTime(at)), FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:phase":{},"f:reason":{}}}`),
		}}
	}
	return nil
}

// refuse creates a pod with a GPU that the kubelet of the node has refused now.
func (e *env) refuse(name string, changes ...func(*corev1.Pod)) {
	e.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ml", Name: name, UID: types.UID(name),
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "train", UID: "1", Controller: new(true)},
			},
			Annotations: map[string]string{writtenAt: e.clock.Now().Format(time.RFC3339), writtenPart: "status"},
		},
		Spec: corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{labels.ResourceGPU: resource.MustParse("1")},
			},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError"},
	}
	for _, change := range changes {
		change(pod)
	}
	e.Expect(e.client.Create(e.t.Context(), pod)).To(Succeed())
}

func refusedAt(at time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations[writtenAt] = at.Format(time.RFC3339) }
}

func bare(pod *corev1.Pod) { pod.OwnerReferences = nil }

// users returns the names of the pods outside of the operator's namespace.
func (e *env) users() []string {
	e.t.Helper()
	pods := &corev1.PodList{}
	e.Expect(e.client.List(e.t.Context(), pods)).To(Succeed())
	var names []string
	for i := range pods.Items {
		if pods.Items[i].Namespace != "gpu-operator" {
			names = append(names, pods.Items[i].Name)
		}
	}
	return names
}

// untouched creates pods that the operator must neither report nor delete.
func (e *env) untouched() (names []string) {
	for name, change := range map[string]func(*corev1.Pod){
		"evicted":     func(pod *corev1.Pod) { pod.Status.Reason = "Evicted" },
		"no-gpu":      func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Limits = nil },
		"succeeded":   func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded },
		"elsewhere":   func(pod *corev1.Pod) { pod.Spec.NodeName = "b" },
		"no-time":     func(pod *corev1.Pod) { delete(pod.Annotations, writtenAt) },
		"metadata":    func(pod *corev1.Pod) { pod.Annotations[writtenPart] = "" },
		"before-boot": refusedAt(now.Add(-time.Hour)),
	} {
		e.refuse(name, change)
		names = append(names, name)
	}
	return names
}

// Pods that the kubelet refused at a boot are reported in the condition and in one Event, until they are gone.
func TestRefusedPodsAreReported(t *testing.T) {
	e := newEnv(t)
	e.boot("one")
	e.advertise()
	e.publish()
	e.settle()
	e.boot("two")
	e.settle()
	others := e.untouched()
	for i := range 4 {
		e.refuse(fmt.Sprintf("refused-%d", i))
	}
	e.advertise()
	e.settle()
	const want = "a: GPUs can be used; its kubelet refused 4 pods with GPUs: ml/refused-0, ml/refused-1, ml/refused-2 " +
		"and 1 more after a boot (UnexpectedAdmissionError): delete them"
	e.Expect(e.reported()).To(Equal("True GPUPodsRefused"))
	e.Expect(assess.GPUReadyCondition(e.node()).Message).To(Equal(want))
	e.Expect(e.eventReasons()).To(ConsistOf("GPUPodsRefused"))
	e.Expect(e.users()).To(HaveLen(4+len(others)), "none is deleted without cleanFailedPods")

	before := e.writes
	for range 3 {
		e.Expect(e.reconcileAfter(time.Minute)).To(BeNumerically("<=", 10*time.Minute))
	}
	e.fleet.Delete("a")
	e.settle()
	e.Expect(e.writes).To(Equal(before), "nor after a restart of the operator")

	e.Expect(e.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("ml"))).To(Succeed())
	_, err := e.reconcileAfter(10 * time.Minute)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(e.reported()).To(Equal("True GPUReady"))
	e.Expect(e.writes).To(Equal(before+1), "one write at their end")
	e.Expect(e.eventReasons()).To(ConsistOf("GPUPodsRefused"))
	e.Expect(e.reconcileAfter(time.Hour)).To(BeZero(), "it does not look again")
}

// newCleaning returns an env with cleanFailedPods, and a node of boot one on which GPUs can be used.
func newCleaning(t *testing.T) *env {
	t.Helper()
	e := newEnv(t)
	e.spec.NodeStartup = &v1.NodeStartupSpec{CleanFailedPods: new(true)}
	e.boot("one")
	e.advertise()
	e.publish()
	e.settle()
	return e
}

// With cleanFailedPods those are deleted that a controller owns, and no others.
func TestRefusedPodsAreCleaned(t *testing.T) {
	e := newCleaning(t)
	e.Expect(e.node()).To(bootOf(Equal("one")), "so that a boot is noticed while the operator restarts")
	e.refuse("just-before")
	e.settle()
	e.boot("two")
	e.settle()
	others := append(e.untouched(), "just-before")
	e.refuse("owned")
	e.refuse("bare", bare)
	e.refuse("system", func(pod *corev1.Pod) { pod.Namespace = "kube-system" })
	e.refuse("reference", func(pod *corev1.Pod) { pod.OwnerReferences[0].Controller = nil })
	e.Expect(e.users()).To(ContainElement("owned"), "not before the GPUs can be used")
	e.advertise()
	e.settle()
	e.Expect(e.users()).To(ConsistOf(append(others, "bare", "system", "reference")))
	e.Expect(assess.GPUReadyCondition(e.node()).Message).To(ContainSubstring(
		"refused 3 pods with GPUs: kube-system/system, ml/bare, ml/reference after a boot"))
	e.Expect(e.eventReasons()).To(ConsistOf("GPUPodsRefused"))
}

// What one reconcile leaves is deleted by another one, a few seconds later.
func TestManyRefusedPodsAreCleaned(t *testing.T) {
	e := newCleaning(t)
	e.boot("two")
	e.settle()
	for i := range maxCleaned + 1 {
		e.refuse(fmt.Sprint("pod-", i))
	}
	e.advertise()
	e.settle()
	e.Expect(e.users()).To(BeEmpty())
}

// The kubelet of a node whose boot the operator did not see has refused pods in this boot if that was shortly before
// the node became ready, or later.
func TestRefusedPodsAfterRestart(t *testing.T) {
	for name, test := range map[string]struct {
		refused time.Duration
		want    string
	}{
		"in this boot":     {-time.Minute, "True GPUPodsRefused"},
		"long before that": {-11 * time.Minute, "True GPUReady"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newBooted(t, "one", v1.OnFailureReport)
			e.fleet.Delete("a")
			e.boot("two")
			e.refuse("refused", refusedAt(e.clock.Now().Add(test.refused)))
			e.advertise()
			e.settle()
			e.Expect(e.reported()).To(Equal(test.want))
		})
	}
}

// A refused pod that is gone already counts as deleted; one that the API server keeps does not.
func TestARefusedPodThatCannotBeDeleted(t *testing.T) {
	gone := apierrors.NewNotFound(corev1.Resource("pods"), "x")
	forbidden := apierrors.NewForbidden(corev1.Resource("pods"), "x", nil)
	for _, test := range []struct{ answer, want error }{{nil, nil}, {gone, nil}, {forbidden, forbidden}} {
		c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			SubResourceCreate: func(
				context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption,
			) error {
				return test.answer
			},
		}).Build()
		s := &scope{Reconciler: &Reconciler{Options: Options{Client: c, Timing: DefaultTiming()}}}
		if got := s.deleteRefused(t.Context(), observe.RefusedPod{}); !errors.Is(got, test.want) {
			t.Errorf("the API server answers %v: got %v", test.answer, got)
		}
	}
}

// Without the condition Ready nothing is known of the boot before now.
func TestLatestStartOfAKubelet(t *testing.T) {
	g := NewWithT(t)
	s := &scope{
		Reconciler: &Reconciler{Options: Options{Timing: DefaultTiming()}}, node: &corev1.Node{}, now: now,
	}
	g.Expect(s.latestStart()).To(Equal(now))
	changed := now.Add(-time.Hour)
	s.node.Status.Conditions = readyCondition(corev1.ConditionTrue, changed)
	g.Expect(s.latestStart()).To(BeTemporally("==", changed.Add(-s.Timing.KubeletStart)))
}

// A boot is noticed once: between two assessments, or after a restart by what the Node shows.
func TestBootsThatAreNoticed(t *testing.T) {
	assessed, start := now.Add(-time.Minute), now.Add(-time.Hour-DefaultTiming().KubeletStart)
	kept := fleet.Boot{ID: "one", After: now.Add(-time.Hour), LookAt: now, Refused: "x"}
	for name, test := range map[string]struct {
		before          fleet.Boot
		boot, readyBoot string
		refused         string
		want            fleet.Boot
	}{
		"none reported": {before: kept, want: kept},
		"the same":      {before: kept, boot: "one", want: kept},
		"another":       {before: kept, boot: "two", want: fleet.Boot{ID: "two", After: assessed, LookAt: now}},
		"the first":     {boot: "one", want: fleet.Boot{ID: "one"}},
		"one since the record": {
			boot: "two", readyBoot: "one", want: fleet.Boot{ID: "two", After: start, LookAt: now},
		},
		"one with refused pods": {
			boot: "one", readyBoot: "one", refused: v1.ReasonGPUPodsRefused,
			want: fleet.Boot{ID: "one", After: start, LookAt: now},
		},
		"one with another condition": {boot: "one", readyBoot: "one", refused: "x", want: fleet.Boot{ID: "one"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope{
				Reconciler: New(Options{Timing: DefaultTiming()}), node: &corev1.Node{}, now: now,
				entry: fleet.Entry{Boot: test.before, Latest: assess.Assessment{At: assessed}},
			}
			s.node.Status.NodeInfo.BootID = test.boot
			s.node.Annotations = map[string]string{labels.ReadyBoot: test.readyBoot}
			s.node.Status.Conditions = readyCondition(corev1.ConditionTrue, now.Add(-time.Hour))
			if test.refused != "" {
				s.node.Status.Conditions = append(s.node.Status.Conditions,
					corev1.NodeCondition{Type: labels.ConditionGPUReady, Reason: test.refused})
			}
			s.noticeBoot()
			NewWithT(t).Expect(s.entry.Boot).To(Equal(test.want))
		})
	}
}

// Refused pods are looked for when the GPUs can be used, and again while some are left.
func TestLookingForRefusedPods(t *testing.T) {
	const refused = "its kubelet refused 1 pod with GPUs: ml/x after a boot (UnexpectedAdmissionError): delete them"
	failure := errors.New("refused")
	due := fleet.Boot{ID: "two", After: now.Add(-time.Hour), LookAt: now, Refused: "x"}
	boot := func(refused string, wait time.Duration) fleet.Boot {
		return fleet.Boot{ID: "two", After: due.After, LookAt: now.Add(wait), Refused: refused}
	}
	for name, test := range map[string]struct {
		before           fleet.Boot
		unusable, paused bool
		pods             int
		clean            bool
		fails            string
		looks            bool
		after            fleet.Boot
		again            time.Duration
		left             int
	}{
		"none is due":        {before: fleet.Boot{ID: "two"}, after: fleet.Boot{ID: "two"}},
		"before they can be": {before: due, unusable: true, after: due},
		"while paused":       {before: due, paused: true, after: due},
		"too early":          {before: boot("", time.Second), after: boot("", time.Second), again: time.Second},
		"none is left":       {before: due, looks: true, after: fleet.Boot{ID: "two", After: due.After}},
		"one is left": {
			before: due, pods: 1, looks: true, after: boot(refused, 10*time.Minute), again: 10 * time.Minute, left: 1,
		},
		"one is deleted": {before: due, pods: 1, clean: true, looks: true, after: fleet.Boot{ID: "two", After: due.After}},
		"one cannot be deleted": {
			before: due, pods: 1, clean: true, fails: "evict", looks: true, after: boot(refused, 10*time.Minute),
			again: 10 * time.Minute, left: 1,
		},
		"most are deleted": {
			before: due, pods: maxCleaned + 1, clean: true, looks: true, after: boot(refused, time.Second),
			again: time.Second, left: 1,
		},
		"they cannot be read": {
			before: due, pods: 1, fails: "list", after: boot("x", 30*time.Second), again: 30 * time.Second, left: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.spec = v1.ClusterPolicySpec{
				Paused: &test.paused, NodeStartup: &v1.NodeStartupSpec{CleanFailedPods: &test.clean},
			}
			e.publish()
			for i := range test.pods {
				e.refuse(strings.Repeat("w", i) + "x") // The last one in order is x.
			}
			s := e.scope(func(s *scope) { s.entry.Boot, s.entry.Latest.Usable = test.before, !test.unusable })
			e.fails = map[string]error{test.fails: failure}
			e.Expect(s.handleRefusedPods(t.Context())).To(Equal(test.looks))
			e.Expect(s.entry.Boot).To(Equal(test.after))
			e.Expect(s.requeueAfter).To(Equal(test.again))
			e.fails = nil
			e.Expect(e.users()).To(HaveLen(test.left))
		})
	}
}

// A boot with refused pods has one Event, and another one if some are deleted later.
func TestEventsOfRefusedPods(t *testing.T) {
	pods := []observe.RefusedPod{{Namespace: "ml", Name: "x"}, {Namespace: "ml", Name: "y"}}
	const message = "Warning GPUPodsRefused of v1 Node a u: " +
		"a: the kubelet refused 2 pods with GPUs: ml/x, ml/y after a boot (UnexpectedAdmissionError)"
	const deleted = message + "; deleted 1 of them, which controllers own"
	e := newEnv(t)
	s := e.scope(func(s *scope) { s.node.Status.NodeInfo.BootID = "one" })
	record := func(refused string, pods []observe.RefusedPod, deleted int) []string {
		s.entry.Boot.Refused = refused
		s.recordRefusal(t.Context(), pods, deleted)
		return e.events()
	}
	e.Expect(record("", nil, 0)).To(BeEmpty())
	e.Expect(record("x", pods, 0)).To(BeEmpty(), "they are known")
	e.Expect(record("", pods, 0)).To(ConsistOf(message))
	e.Expect(record("", pods, 0)).To(ConsistOf(message))
	e.Expect(record("x", pods, 1)).To(ConsistOf(message, deleted))
	s.node.Status.NodeInfo.BootID = "two"
	e.Expect(record("", pods, 0)).To(ConsistOf(message, message, deleted))
	s.node.Status.NodeInfo.BootID = "three"
	s.node.Status.Conditions = []corev1.NodeCondition{
		{Type: labels.ConditionGPUReady, Reason: v1.ReasonGPUPodsRefused},
	}
	e.Expect(record("", pods, 0)).To(HaveLen(3), "the condition shows them")
}
