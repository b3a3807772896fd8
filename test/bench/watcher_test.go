package main

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// daemonSetOf returns a DaemonSet that wants pods.
func daemonSetOf(name string, wanted int32) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2},
		Status:     appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: wanted},
	}
}

// policyWith returns a policy of generation 3 with a status.
func policyWith(status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"generation": int64(3)}, "status": status,
	}}
}

var readyStatus = map[string]any{"state": "ready", "observedGeneration": int64(3)}

func TestTheWatcherWantsAPodOfEachDaemonSetOnEachNode(t *testing.T) {
	g := NewWithT(t)
	w := newWatcher(2, nil)
	w.policySeen(policyWith(readyStatus), false)
	g.Expect(w.ready).NotTo(BeClosed(), "no DaemonSet exists")
	for name, wanted := range map[string]int32{"driver": 2, "plugin": 2, "mig": 0} {
		w.daemonSetSeen(daemonSetOf(name, wanted), false)
	}
	see := handlerOf(w.podSeen)
	for _, pod := range []*corev1.Pod{
		podOf("1", "driver", "a", true), podOf("2", "driver", "b", true), podOf("3", "plugin", "a", true),
		podOf("4", "plugin", "a", true), podOf("5", "another", "b", true), podOf("6", "plugin", "b", false),
	} {
		see.OnAdd(pod, true)
	}
	w.podSeen(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "b"}}, false)
	g.Expect(w.ready).NotTo(BeClosed(), "plugin has no Ready pod on b")
	g.Expect(w.state()).To(Equal("Ready pods: driver 2/2, mig 0/0, plugin 1/2; the policy is ready: true; " +
		"nodes whose condition is True: 0"))

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
	wanted := w.wantedPods()
	g.Expect(w.stillReady(wanted)).To(Succeed())
	w.podSeen(podOf("8", "driver", "a", true), true)
	pods, all := w.moments()
	g.Expect(all).To(Equal(pods), "the first moment counts")
	g.Expect(w.stillReady(wanted)).To(MatchError(ContainSubstring("it was ready and is not any more")))
}

// TestTheWatcherDoesNotEndEarly: while nodes are still being labelled, while the status of a DaemonSet is of another
// generation, and when another DaemonSet appears afterwards.
func TestTheWatcherDoesNotEndEarly(t *testing.T) {
	g := NewWithT(t)
	w := newWatcher(2, nil)
	w.policySeen(policyWith(readyStatus), false)
	w.podSeen(podOf("1", "driver", "a", true), false)
	w.daemonSetSeen(daemonSetOf("driver", 1), false)
	g.Expect(w.ready).NotTo(BeClosed(), "the DaemonSet wants pods on one of two identical nodes")
	w.podSeen(podOf("2", "driver", "b", true), false)
	outdated := daemonSetOf("driver", 2)
	outdated.Generation = 3
	w.daemonSetSeen(outdated, false)
	g.Expect(w.ready).NotTo(BeClosed(), "its status is of the generation before")
	w.daemonSetSeen(daemonSetOf("driver", 2), false)
	g.Expect(w.ready).To(BeClosed())
	wanted := w.wantedPods()
	w.daemonSetSeen(daemonSetOf("late", 0), false)
	g.Expect(w.stillReady(wanted)).To(MatchError(ContainSubstring("the DaemonSets wanted pods")))
	w.daemonSetSeen(daemonSetOf("late", 0), true)
	g.Expect(w.stillReady(wanted)).To(Succeed())
}

// TestTheWatcherWantsAReadyPolicy: of the current generation, if the status has one.
func TestTheWatcherWantsAReadyPolicy(t *testing.T) {
	for name, test := range map[string]struct {
		status map[string]any
		ready  bool
	}{
		"ready":                       {readyStatus, true},
		"no generation in the status": {map[string]any{"state": "ready"}, true},
		"an earlier generation":       {map[string]any{"state": "ready", "observedGeneration": int64(2)}, false},
		"not ready":                   {map[string]any{"state": "notReady", "observedGeneration": int64(3)}, false},
		"no status":                   {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWatcher(1, nil)
			w.daemonSetSeen(daemonSetOf("driver", 1), false)
			w.podSeen(podOf("1", "driver", "a", true), false)
			g.Expect(w.ready).NotTo(BeClosed())
			w.policySeen(policyWith(test.status), false)
			_, all := w.moments()
			g.Expect(!all.IsZero()).To(Equal(test.ready))
		})
	}
}

// TestAFloorWantsItsDaemonSets: all of them, without a policy.
func TestAFloorWantsItsDaemonSets(t *testing.T) {
	g := NewWithT(t)
	w := newWatcher(1, []string{"driver", "plugin"})
	w.daemonSetSeen(daemonSetOf("driver", 1), false)
	w.podSeen(podOf("1", "driver", "a", true), false)
	g.Expect(w.ready).NotTo(BeClosed(), "plugin does not exist")
	w.daemonSetSeen(daemonSetOf("plugin", 0), false)
	g.Expect(w.ready).NotTo(BeClosed(), "plugin wants no pod")
	w.daemonSetSeen(daemonSetOf("plugin", 1), false)
	w.podSeen(podOf("2", "plugin", "a", true), false)
	g.Expect(w.ready).To(BeClosed())
}

// TestALatePodDoesNotHideItsSuccessor: the deletion of a pod may be observed after the next one of the same place is
// Ready.
func TestALatePodDoesNotHideItsSuccessor(t *testing.T) {
	g := NewWithT(t)
	w := newWatcher(2, []string{"driver"})
	w.daemonSetSeen(daemonSetOf("driver", 2), false)
	w.podSeen(podOf("1", "driver", "a", true), false)
	w.podSeen(podOf("2", "driver", "a", true), false)
	w.podSeen(podOf("1", "driver", "a", true), true)
	w.podSeen(podOf("3", "driver", "b", true), false)
	g.Expect(w.ready).To(BeClosed())
}

func TestTheWatcherRecordsTheConditions(t *testing.T) {
	g := NewWithT(t)
	w := newWatcher(2, nil)
	w.nodeSeen(nodeWith("a", "nvidia.com/GPUReady", corev1.ConditionTrue), false)
	w.nodeSeen(nodeWith("b", corev1.NodeReady, corev1.ConditionTrue), false)
	w.nodeSeen(nodeWith("a", "nvidia.com/GPUReady", corev1.ConditionUnknown), false)
	w.nodeSeen(nodeWith("b", "nvidia.com/GPUReady", corev1.ConditionTrue), false)
	g.Expect(w.conditions).NotTo(BeClosed(), "a is no longer True")
	w.nodeSeen(nodeWith("a", "nvidia.com/GPUReady", corev1.ConditionTrue), false)
	g.Expect(w.conditions).To(BeClosed())
	g.Expect(w.conditionsMoment()).NotTo(BeZero())
}
