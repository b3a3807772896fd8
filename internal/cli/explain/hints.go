package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// notOfferedCause is what usually leads to a request of a resource that no node offers.
func notOfferedCause(name string) string {
	switch {
	case strings.HasPrefix(name, labels.ResourceMIGPrefix):
		return "GPUs have another MIG layout, or spec.mig.strategy is single or none: only mixed offers MIG devices by " +
			"names of their own"
	case strings.HasSuffix(name, labels.SharedResourceSuffix):
		return "GPUs are not shared, or are shared without renameByDefault"
	}
	return "all GPUs are partitioned or renamed, or no node is ready"
}

// notOfferedNext is the next step, where nodes offer others.
func notOfferedNext(name string, others map[string]bool) string {
	whole, isShare := strings.CutSuffix(name, labels.SharedResourceSuffix)
	switch {
	case strings.HasPrefix(name, labels.ResourceMIGPrefix) && others[labels.ResourceGPU]:
		return "with spec.mig.strategy: single request " + labels.ResourceGPU + ", or set the strategy to mixed; set the " +
			"layout by the label " + labels.MIGConfig + " of the nodes"
	case others[name+labels.SharedResourceSuffix]:
		return "request " + name + labels.SharedResourceSuffix
	case isShare && others[whole]:
		return "request " + whole
	case len(others) == 0:
		return "see why no node is ready: kubectl gpu status, then kubectl gpu explain NODE"
	}
	return "request one of the resources that nodes offer"
}

// untolerated returns a taint of the node that keeps the pod from it, empty if none does. The taint of cordoned nodes
// is left out.
func untolerated(pod *corev1.Pod, node *corev1.Node) string {
	blocks := func(taint *corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule && taint.Key != corev1.TaintNodeUnschedulable
	}
	taint, found := scheduling.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints,
		pod.Spec.Tolerations, blocks, true)
	if !found {
		return ""
	}
	return taint.ToString()
}

func taintFinding(taint string) Finding {
	f := Finding{
		Reason:  UntoleratedTaint,
		Message: fmt.Sprintf("these nodes have the taint %s, which the pod does not tolerate", taint),
		Next:    "add a toleration to the pod, or remove the taint if it is not intended",
	}
	if strings.HasPrefix(taint, labels.TaintUnhealthy) {
		f.Cause = "the operator has set the taint (spec.health.actions), because a GPU of the node is unhealthy"
		f.Next = "use other nodes, and see what the GPU needs: kubectl gpu explain NODE"
	}
	if strings.HasPrefix(taint, labels.TaintNotReady) {
		f.Cause = "the operator has set the taint (spec.nodeStartup), because the GPUs of the node are not ready"
		f.Next = "wait, and see why they are not: kubectl gpu explain NODE"
	}
	return f
}

// outsideNVLinkDomains reports whether a required affinity of the pod is about NVLink domains, and the node is in none.
func outsideNVLinkDomains(pod *corev1.Pod, node *corev1.Node) bool {
	affinity := pod.Spec.Affinity
	if node.Labels[labels.GPUClique] != "" || affinity == nil || affinity.PodAffinity == nil {
		return false
	}
	return slices.ContainsFunc(affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
		func(term corev1.PodAffinityTerm) bool { return term.TopologyKey == labels.GPUClique })
}

func noNVLinkDomain() Finding {
	return Finding{
		Reason: NoNVLinkDomain,
		Message: "the pod affinity is about NVLink domains (" + labels.GPUClique + "), and these nodes have no label of " +
			"one",
		Cause: "GPU Feature Discovery writes the label where the driver reports a domain, as on GB200 NVL72. Other " +
			"GPUs have no NVLink between nodes, and on such racks the fabric may not be complete",
		Next: "see the domains: kubectl get nodes -L " + labels.GPUClique + ". Without one remove the rule from the pod",
	}
}
