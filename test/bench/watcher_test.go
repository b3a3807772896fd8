package main

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// podOf returns a pod of a DaemonSet on a node.
func podOf(uid, daemonSet, node string, ready bool) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID:             types.UID(uid),
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: daemonSet, Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Unix(1, 0)},
		}},
	}
}

// nodeWith returns a node with a condition.
func nodeWith(name string, kind corev1.NodeConditionType, status corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: kind, Status: status}}},
	}
}

func TestTheWatcherWantsAPodOfEachDaemonSetOnEachNode(t *testing.T) {
	g := NewWithT(t)
	w := newWatcher([]string{"driver", "plugin"}, 2, false)
	see := handlerOf(w.podSeen)
	for _, pod := range []*corev1.Pod{
		podOf("1", "driver", "a", true), podOf("2", "driver", "b", true), podOf("3", "plugin", "a", true),
		podOf("4", "plugin", "a", true), podOf("5", "another", "b", true), podOf("6", "plugin", "b", false),
	} {
		see.OnAdd(pod, true)
	}
	w.podSeen(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "b"}}, false)
	g.Expect(w.ready).NotTo(BeClosed(), "plugin has no Ready pod on b")
	g.Expect(w.state()).To(Equal("Ready pods: driver 2/2, plugin 1/2; nodes whose condition is True: 0"))

	see.OnDelete(cache.DeletedFinalStateUnknown{Obj: podOf("1", "driver", "a", true)})
	see.OnUpdate(nil, podOf("6", "plugin", "b", true))
	g.Expect(w.ready).NotTo(BeClosed(), "the pod of driver on a is deleted")
	pods, _ := w.moments()
	g.Expect(pods).To(BeZero())

	leaving := podOf("7", "driver", "a", true)
	leaving.DeletionTimestamp = &metav1.Time{}
	w.podSeen(leaving, false)
	g.Expect(w.ready).NotTo(BeClosed(), "its successor is being deleted")

	w.podSeen(podOf("8", "driver", "a", true), false)
	g.Expect(w.ready).To(BeClosed())
	w.podSeen(podOf("8", "driver", "a", true), true)
	pods, all := w.moments()
	g.Expect(all).To(Equal(pods), "the first moment counts")
}

// TestALatePodDoesNotHideItsSuccessor: the deletion of a pod may be observed after the next one of the same place is
// Ready.
func TestALatePodDoesNotHideItsSuccessor(t *testing.T) {
	g := NewWithT(t)
	w := newWatcher([]string{"driver"}, 2, false)
	w.podSeen(podOf("1", "driver", "a", true), false)
	w.podSeen(podOf("2", "driver", "a", true), false)
	w.podSeen(podOf("1", "driver", "a", true), true)
	w.podSeen(podOf("3", "driver", "b", true), false)
	g.Expect(w.ready).To(BeClosed())
}

func TestTheWatcherWantsTheConditionOfEachNode(t *testing.T) {
	g := NewWithT(t)
	w := newWatcher([]string{"driver"}, 2, true)
	w.nodeSeen(nodeWith("a", "nvidia.com/GPUReady", corev1.ConditionTrue), false)
	w.nodeSeen(nodeWith("b", corev1.NodeReady, corev1.ConditionTrue), false)
	w.podSeen(podOf("1", "driver", "a", true), false)
	w.podSeen(podOf("2", "driver", "b", true), false)
	g.Expect(w.ready).NotTo(BeClosed())
	w.nodeSeen(nodeWith("a", "nvidia.com/GPUReady", corev1.ConditionUnknown), false)
	w.nodeSeen(nodeWith("b", "nvidia.com/GPUReady", corev1.ConditionTrue), false)
	g.Expect(w.ready).NotTo(BeClosed(), "a is no longer True")
	w.nodeSeen(nodeWith("a", "nvidia.com/GPUReady", corev1.ConditionTrue), false)
	g.Expect(w.ready).To(BeClosed())
	pods, all := w.moments()
	g.Expect(pods).NotTo(BeZero())
	g.Expect(all).NotTo(BeTemporally("<", pods))
}
