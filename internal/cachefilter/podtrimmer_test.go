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

	"github.com/clusterpolicy/gpu-operator/internal/labels"
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
