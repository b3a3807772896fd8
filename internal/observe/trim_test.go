package observe_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

var trimmedMeta = metav1.ObjectMeta{
	Name: "a", Namespace: "gpu-operator", UID: "u", ResourceVersion: "7",
	Labels:      map[string]string{"nvidia.com/gpu.present": "true"},
	Annotations: map[string]string{"digest": "of another writer", "nvidia.com/gpu-operator.template-digest": "d"},
}

// Trims must be idempotent: client-go trims the initial objects of a watch twice.
func TestTrimsAreIdempotent(t *testing.T) {
	for name, c := range map[string]struct {
		trim   func(any) (any, error)
		object runtime.Object
	}{
		"a ConfigMap": {
			observe.TrimReference,
			&corev1.ConfigMap{
				ObjectMeta: trimmedMeta,
				Data:       map[string]string{"b": "1"},
				BinaryData: map[string][]byte{"a": {1}},
			},
		},
		"a Secret": {
			observe.TrimReference,
			&corev1.Secret{ObjectMeta: trimmedMeta, Data: map[string][]byte{"a": {1}}},
		},
		"a PriorityClass": {observe.TrimReference, &schedulingv1.PriorityClass{ObjectMeta: trimmedMeta, Value: 7}},
		"a binding of an admission policy": {observe.TrimReference, &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: trimmedMeta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "a"},
		}},
		"a Node": {observe.TrimNode, &corev1.Node{ObjectMeta: trimmedMeta, Status: corev1.NodeStatus{
			Capacity:   corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8"), "cpu": resource.MustParse("1")},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Time{Time: time.Unix(1, 0)}}},
		}}},
		"a Pod": {trimPod, &corev1.Pod{
			ObjectMeta: trimmedMeta,
			Spec: corev1.PodSpec{
				RuntimeClassName: new("nvidia"),
				InitContainers:   []corev1.Container{{Name: "gpu-node-wait", Args: []string{"wait"}}, {Name: "other"}},
				Affinity: &corev1.Affinity{
					NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
						NodeSelectorTerms: []corev1.NodeSelectorTerm{
							{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"n"}}}},
						},
					}},
				},
			},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: "True"}}},
		}},
		"a definition": {
			observe.TrimDefinition,
			&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "CustomResourceDefinition"}, ObjectMeta: trimmedMeta},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			once, err := c.trim(c.object)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(once).NotTo(Equal(c.object))
			twice, err := c.trim(once)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(twice).To(Equal(once))
		})
	}
}

// Trimmed references keep the keys and the digest, but no data.
func TestContentsOfTrimmedReferences(t *testing.T) {
	g := NewWithT(t)
	read := func(data map[string]string) operand.Content {
		trimmed, err := observe.TrimReference(&corev1.ConfigMap{ObjectMeta: trimmedMeta, Data: data})
		g.Expect(err).NotTo(HaveOccurred())
		object, isObject := trimmed.(client.Object)
		g.Expect(isObject).To(BeTrue())
		g.Expect(object).To(HaveField("Data", BeEmpty()))
		reader := fake.NewClientBuilder().WithObjects(object).Build()
		reference := operand.Reference{Kind: operand.ConfigMap, Name: "a"}
		contents, err := observe.Contents(t.Context(), reader, "gpu-operator", []operand.Reference{
			reference,
			{Kind: operand.Secret, Name: "a"},
		})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(contents).To(HaveLen(1), "there is no Secret")
		return contents[reference]
	}
	first := read(map[string]string{"a": "1", "b": "2"})
	g.Expect(first.Keys).To(Equal([]string{"a", "b"}))
	g.Expect(read(map[string]string{"b": "2", "a": "1"})).To(Equal(first))
	g.Expect(read(map[string]string{"a": "1", "b": "3"}).Digest).NotTo(Equal(first.Digest))
}

// Every kind that is watched can be read.
func TestEveryKindOfReferenceIsRead(t *testing.T) {
	g := NewWithT(t)
	references := []operand.Reference{
		{Kind: operand.ConfigMap, Name: "a"}, {Kind: operand.Secret, Name: "b"}, {Kind: operand.PriorityClass, Name: "c"},
		{Kind: operand.ValidatingAdmissionPolicyBinding, Name: "d"},
	}
	kinds := observe.ReferenceKinds()
	g.Expect(kinds).To(HaveLen(len(references)))
	for i, object := range kinds {
		object.SetName(references[i].Name)
		if i < 2 {
			object.SetNamespace("gpu-operator")
		}
	}
	none, err := observe.Contents(t.Context(), fake.NewClientBuilder().Build(), "gpu-operator", references)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(none).To(And(BeEmpty(), Not(BeNil())), "it has been read")
	all, err := observe.Contents(
		t.Context(),
		fake.NewClientBuilder().WithObjects(kinds...).Build(),
		"gpu-operator",
		references,
	)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(all).To(HaveLen(len(references)))
}

// A write replaces the whole list of taints, so the trim must keep all of it.
func TestTrimKeepsTaints(t *testing.T) {
	g := NewWithT(t)
	added := metav1.Now()
	taints := []corev1.Taint{{Key: "a", Value: "b", Effect: corev1.TaintEffectNoExecute, TimeAdded: &added}}
	g.Expect(observe.TrimNode(&corev1.Node{
		Spec: corev1.NodeSpec{Taints: taints},
	})).To(HaveField("Spec.Taints", Equal(taints)))
}

// The trim drops nothing that the verdict on a pod depends on.
func TestTrimmedPodsHaveTheSameVerdict(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	ended := func(ago time.Duration, code int32) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{
			ExitCode:   code,
			Message:    "message",
			StartedAt:  metav1.NewTime(at.Add(-ago)),
			FinishedAt: metav1.NewTime(at.Add(-ago)),
		}
	}
	running := corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at.Add(-10 * time.Second))},
	}
	waits := corev1.Container{Name: "gpu-node-wait", Args: []string{"wait", "--for=driver-ready"}}
	tests := map[string]struct {
		change func(*corev1.Pod)
		stable bool
	}{
		"ready":              {func(*corev1.Pod) {}, true},
		"ready and replaced": {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(at)) }, true},
		"failed as a whole":  {func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" }, true},
		"not scheduled":      {func(p *corev1.Pod) { p.Status.Conditions = nil }, false},
		"starting":           {func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionFalse }, false},
		"ready after a failure": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = ended(15*time.Second, 1)
		}, false},
		"ready after a reboot": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = ended(time.Hour, 1)
		}, false},
		"ready with a terminated container": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: ended(0, 0)}
		}, false},
		"without a sandbox": {func(p *corev1.Pod) {
			p.Spec.RuntimeClassName = new("nvidia")
			p.Status.Conditions[1].Status = corev1.ConditionFalse
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
				Type:   corev1.PodReadyToStartContainers,
				Status: corev1.ConditionFalse,
			})
		}, false},
		"waiting": {func(p *corev1.Pod) {
			p.Status.Conditions[1].Status = corev1.ConditionFalse
			p.Status.InitContainerStatuses[0].State = running
		}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{templateDigest: "d"}},
				Spec:       corev1.PodSpec{InitContainers: []corev1.Container{waits}},
				Status: corev1.PodStatus{
					Phase: corev1.PodRunning,
					Conditions: []corev1.PodCondition{
						{Type: corev1.PodScheduled, Status: "True"},
						{Type: corev1.PodReady, Status: "True"},
					},
					InitContainerStatuses: []corev1.ContainerStatus{
						{Name: "gpu-node-wait", State: corev1.ContainerState{Terminated: ended(20*time.Second, 0)}},
					},
					ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: true, State: running}},
				},
			}
			test.change(pod)
			want := readiness.Pod(pod, "d", at)
			left := trimmed(t, trimPod, pod)
			g.Expect(readiness.Pod(left, "d", at)).To(Equal(want))
			g.Expect(left.Status.ContainerStatuses == nil).To(Equal(test.stable))
		})
	}
}
