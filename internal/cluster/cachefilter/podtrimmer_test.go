package cachefilter

import (
	"fmt"
	"maps"
	"reflect"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// podOf returns a pod of the driver from this template of this DaemonSet.
func podOf(digest string, daemonSet types.UID) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{labels.Operand: "driver"}, Annotations: map[string]string{labels.TemplateDigest: digest},
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "driver", UID: daemonSet, Controller: new(true)}},
		},
		Spec: corev1.PodSpec{RuntimeClassName: new("nvidia")},
	}
}

func trimOne(t *testing.T, trimmer *PodTrimmer, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	object, err := trimmer.Pod(pod)
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	trimmed, isPod := object.(*corev1.Pod)
	g.Expect(isPod).To(BeTrue())
	return trimmed
}

// The number of shared parts is limited, however many templates there have been.
func TestPodTrimmerIsBounded(t *testing.T) {
	g := NewWithT(t)
	trimmer, most := NewPodTrimmer(), 0
	for i := range 10_000 {
		digest, uid := fmt.Sprint("digest-", i), types.UID(fmt.Sprint("uid-", i))
		trimmed := trimOne(t, trimmer, podOf(digest, uid))
		if trimmed.Annotations[labels.TemplateDigest] != digest || trimmed.OwnerReferences[0].UID != uid ||
			trimmed.Labels[labels.Operand] != "driver" {
			t.Fatalf("pod %d is trimmed to %v", i, trimmed.ObjectMeta)
		}
		most = max(most, len(trimmer.shared))
	}
	g.Expect(most).To(And(BeNumerically(">", 256), BeNumerically("<=", 512)))
}

// Only pods of one template share their parts.
func TestPodsOfATemplateShareTheirParts(t *testing.T) {
	g := NewWithT(t)
	trimmer := NewPodTrimmer()
	at := func(m map[string]string) uintptr { return reflect.ValueOf(m).Pointer() }
	one, same := trimOne(t, trimmer, podOf("a", "1")), trimOne(t, trimmer, podOf("a", "1"))
	other := trimOne(t, trimmer, podOf("b", "2"))
	g.Expect(at(same.Labels)).To(Equal(at(one.Labels)))
	g.Expect(at(same.Annotations)).To(Equal(at(one.Annotations)))
	g.Expect(&same.OwnerReferences[0]).To(BeIdenticalTo(&one.OwnerReferences[0]))
	g.Expect(same.Spec.RuntimeClassName).To(BeIdenticalTo(one.Spec.RuntimeClassName))
	g.Expect(at(other.Labels)).To(Equal(at(one.Labels)))
	g.Expect(at(other.Annotations)).NotTo(Equal(at(one.Annotations)))
	g.Expect(&other.OwnerReferences[0]).NotTo(BeIdenticalTo(&one.OwnerReferences[0]))
	g.Expect(maps.Equal(trimOne(t, NewPodTrimmer(), podOf("a", "1")).Labels, one.Labels)).To(
		BeTrue(),
		"another cache has its own",
	)
}

// Times and identities stay, because verdicts and preconditions need them.
func TestTrimKeepsIdentityAndTimes(t *testing.T) {
	g := NewWithT(t)
	created, deleted := metav1.Unix(1, 0), metav1.Unix(2, 0)
	meta := metav1.ObjectMeta{
		Name: "a", Namespace: "b", UID: "u", ResourceVersion: "7", CreationTimestamp: created, DeletionTimestamp: &deleted,
		GenerateName: "dropped",
	}
	want := *meta.DeepCopy()
	want.GenerateName = ""
	trimmed := trimOne(t, NewPodTrimmer(), &corev1.Pod{ObjectMeta: meta})
	g.Expect(trimmed.ObjectMeta).To(Equal(want))
	node, err := NewNodeTrimmer(func(string) map[string]string { return nil }).Node(&corev1.Node{ObjectMeta: meta})
	g.Expect(err).NotTo(HaveOccurred())
	want.Labels = map[string]string{}
	g.Expect(node).To(HaveField("ObjectMeta", want))
	other, err := NewNodeTrimmer(nil).Node(trimmed)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(other).To(BeIdenticalTo(trimmed))
}

// A pod that has never terminated needs only the condition Ready, any other one those of its start, too.
func TestTrimKeepsConditions(t *testing.T) {
	of := func(ready corev1.ConditionStatus, kinds ...corev1.PodConditionType) []corev1.PodCondition {
		var all []corev1.PodCondition
		for i, kind := range kinds {
			all = append(all, corev1.PodCondition{
				Type: kind, Status: ready, Reason: "R", Message: "m", LastTransitionTime: metav1.Unix(int64(i), 0),
			})
		}
		return all
	}
	all := []corev1.PodConditionType{
		corev1.PodReady, corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady,
	}
	for ready, kept := range map[corev1.ConditionStatus]int{corev1.ConditionTrue: 1, corev1.ConditionFalse: 3} {
		pod := podOf("a", "1")
		pod.Status.Conditions = of(ready, all...)
		NewWithT(t).Expect(trimOne(t, NewPodTrimmer(), pod).Status.Conditions).To(Equal(of(ready, all[:kept]...)))
	}
}
