package explain

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade/gpuuse"
)

// mayClaim reports whether the pod has a GPU by a resource claim, or may get one: a claim that could not be read, or
// that has no device yet, may be one for GPUs. Admin access counts, as its containers see GPUs.
func (in PodInput) mayClaim() bool {
	if in.Pod.Spec.NodeName == "" {
		return in.claims()
	}
	known := map[string]*resourcev1.ResourceClaimStatus{}
	for _, claim := range in.Claims {
		known[claim.Name] = &claim.Status
	}
	return slices.ContainsFunc(gpuuse.ClaimsOf(in.Pod), func(name string) bool {
		status := known[name]
		return status == nil || status.Allocation == nil || gpuuse.ClaimReaches(status)
	})
}

// claims reports whether the pod has resource claims, or will have one for its extended resources.
func (in PodInput) claims() bool {
	if len(in.Pod.Spec.ResourceClaims) > 0 || gpuuse.HasClaims(in.Pod) {
		return true
	}
	for name, quantity := range resourcehelper.PodRequests(in.Pod, resourcehelper.PodResourcesOptions{}) {
		if quantity.Sign() > 0 && in.isClaimed(name) {
			return true
		}
	}
	return false
}

// isClaimed reports whether no node offers the resource by a device plugin, and a DeviceClass maps it to a claim.
func (in PodInput) isClaimed(name corev1.ResourceName) bool {
	return labels.IsDRAResource(string(name)) ||
		in.Mapped[name] && !slices.ContainsFunc(in.Nodes, func(node *corev1.Node) bool {
			offered := node.Status.Allocatable[name]
			return offered.Sign() > 0
		})
}

// ofPlugins are the requests that device plugins serve.
func (in PodInput) ofPlugins(requests overview.Requests) overview.Requests {
	plain := maps.Clone(requests)
	maps.DeleteFunc(plain, func(name corev1.ResourceName, _ int64) bool { return in.isClaimed(name) })
	return plain
}

// claimIsOpen reports whether the pod waits for a device of a claim.
func (in PodInput) claimIsOpen() bool {
	allocated := 0
	for _, claim := range in.Claims {
		if claim.Status.Allocation != nil {
			allocated++
		}
	}
	return in.claims() && (allocated == 0 || allocated < len(in.Pod.Spec.ResourceClaims))
}

func (in PodInput) notAllocated() Finding {
	namespace := in.Pod.Namespace
	return Finding{
		Reason: ClaimNotAllocated,
		Message: cmp.Or(in.event("FailedScheduling"),
			"a resource claim of the pod has no device yet, and the scheduler has not reported on the pod"),
		Cause: "a DRA driver serves claims: no device that the claim and its DeviceClass select is free, or no driver " +
			"offers one",
		Next: "look at the claims and at what drivers offer: kubectl -n " + namespace +
			" get resourceclaims; kubectl get resourceslices",
	}
}

// noRequest explains a pod that neither requests nor claims GPUs.
func (in PodInput) noRequest() []Finding {
	if in.claims() {
		return []Finding{{
			Reason:  NoGPURequested,
			Message: "no resource claim of the pod has a GPU, and no container requests one by resources.limits",
			Next: "look at its claims: kubectl -n " + in.Pod.Namespace + " get resourceclaims; a DRA driver serves them. " +
				"Claim a device of the DeviceClass gpu.nvidia.com, or set resources.limits, for example nvidia.com/gpu: 1",
		}}
	}
	return []Finding{{
		Reason: NoGPURequested, Message: "no container of the pod requests a GPU",
		Next: "set resources.limits of the container that needs it, for example nvidia.com/gpu: 1",
	}}
}
