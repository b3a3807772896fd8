package invariant

import (
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/campaign/history"
)

// pullPods begins the names of pods that pull the images of a driver before its upgrade.
const pullPods = "gpu-operator-driver-pull-"

// evictions: only the DaemonSet controller creates and deletes pods, but for those that an upgrade explains.
func evictions(r *Run, f *found) {
	explained, replaces := r.replacedByUpgrades(), r.MaxParallel > 0 || r.NewDrivers
	for _, call := range r.Calls.Of("pods") {
		of := history.Key{Kind: history.Pod, Namespace: call.Namespace, Name: call.Name}
		if replaces && call.Verb == "delete" && (explained[of] || call.Code == http.StatusNotFound) {
			continue
		}
		if replaces && strings.HasPrefix(call.Name, pullPods) {
			continue
		}
		if slices.Contains([]string{"create", "delete", "deletecollection"}, call.Verb) {
			f.add("Pod "+call.Name, 0, "the operator requested: "+call.String())
		}
	}
}

// provers are the operands that have validated a driver, which is why they are replaced with it.
var provers = []string{"container-toolkit", "operator-validator"}

// replacedByUpgrades returns the pods of operands that are deleted while their node gets another driver, and those that
// have validated the driver before.
func (r *Run) replacedByUpgrades() map[history.Key]bool {
	found := map[history.Key]bool{}
	r.replay(func(world history.World, event history.Event) {
		pod, is := event.Object.(*corev1.Pod)
		if !is || pod.Namespace != r.Namespace || !event.Gone && pod.DeletionTimestamp == nil {
			return
		}
		operand := pod.Labels[labels.Operand]
		node, is := world[history.Key{Kind: history.Node, Name: pod.Spec.NodeName}].(*corev1.Node)
		restarts := is && slices.Contains([]string{"pod-restart-required", "validation-required"}, stateOf(node))
		found[event.Key] = found[event.Key] || operand != "" && restarts || slices.Contains(provers, operand)
	})
	return found
}

// requires is what must have been ready on a node before an operand is: the edges of the catalogue, repeated so that
// the check does not depend on it.
var requires = map[string]string{
	"container-toolkit": "driver", "device-plugin": "container-toolkit", "gpu-feature-discovery": "container-toolkit",
	"operator-validator": "device-plugin", "mig-manager": "container-toolkit", "mps-control-daemon": "container-toolkit",
}

// dependencies: an operand must have been ready on the node at some time, as it may have been replaced since.
func dependencies(r *Run, f *found) {
	type place struct {
		operand string
		node    types.UID
	}
	ready := map[place]bool{}
	was := func(world history.World, pod *corev1.Pod) (place, bool) {
		node, is := world[history.Key{Kind: history.Node, Name: pod.Spec.NodeName}].(*corev1.Node)
		if !is {
			return place{}, false
		}
		return place{pod.Labels[labels.Operand], node.UID}, isReady(pod)
	}
	for _, pod := range history.All[*corev1.Pod](r.Begin) {
		if at, is := was(r.Begin, pod); is {
			ready[at] = true
		}
	}
	r.replay(func(world history.World, event history.Event) {
		pod, is := event.Object.(*corev1.Pod)
		if !is || event.Gone {
			return
		}
		at, is := was(world, pod)
		if !is {
			return
		}
		needed := place{requires[at.operand], at.node}
		if needed.operand != "" && !ready[needed] && installed(world, needed.operand) {
			f.at(event, "it is ready on %s, where %s has never been", pod.Spec.NodeName, needed.operand)
		}
		ready[at] = true
	})
}

// installed reports whether the operand has pods at all: one that the host provides has none.
func installed(world history.World, operand string) bool {
	for _, pod := range history.All[*corev1.Pod](world) {
		if pod.Labels[labels.Operand] == operand {
			return true
		}
	}
	return false
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// podsStay: a pod that is deleted without a reason takes the GPUs from running workloads.
func podsStay(r *Run, f *found) {
	r.replay(func(world history.World, event history.Event) {
		pod, is := event.Object.(*corev1.Pod)
		if !is || pod.Labels[labels.Operand] == "" || !event.Gone && pod.DeletionTimestamp == nil || pod.Spec.NodeName == "" {
			return
		}
		if world[history.Key{Kind: history.Node, Name: pod.Spec.NodeName}] == nil || r.MayGo(
			pod.Labels[labels.Operand], pod.Spec.NodeName,
		) {
			return
		}
		f.at(event, "the pod of %s is deleted from %s", pod.Labels[labels.Operand], pod.Spec.NodeName)
	})
}
