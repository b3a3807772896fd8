package gpuuse

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Use is how sure it is that a pod uses GPUs.
type Use int

const (
	// None: the pod has no GPU.
	None Use = iota
	// Possible: the pod may have GPUs that no resource and no claim counts, or has another device of NVIDIA.
	Possible
	// Held: the pod has GPUs.
	Held
)

// Claims reports whether the claim with this name holds GPUs. For a claim that cannot be read it has to be true. Nil
// counts every claim.
type Claims func(namespace, name string) bool

// Of returns the use of GPUs by a pod that is on a node. Pods that have ended use none. runtimeClass is the main
// RuntimeClass of the policy; with it, and with those whose names begin with nvidia, any container may get GPUs.
func Of(pod *corev1.Pod, runtimeClass string, claims Claims) Use {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return None
	}
	use := OfRequests(pod)
	if use == Held || holdsClaim(pod, claims) {
		return Held
	}
	class := pod.Spec.RuntimeClassName
	if class != nil && (*class == runtimeClass || strings.HasPrefix(*class, labels.DefaultRuntimeClass)) {
		return Possible
	}
	return use
}

// ClaimVersions returns the versions of resource.k8s.io that clusters serve claims in, the newest first: v1 from
// Kubernetes 1.34, and before that v1beta2 (1.33) and v1beta1 (1.32), where it is turned on. Status.allocation is alike
// in all.
func ClaimVersions() []string { return []string{"v1", "v1beta2", "v1beta1"} }

// ClaimHolds reports whether a claim of this status holds GPUs: one of its devices is NVIDIA's driver's. Admin access,
// by which monitors look at devices that others have, does not count. A claim without an allocation holds nothing: the
// kubelet starts no pod with it.
func ClaimHolds(status *resourcev1.ResourceClaimStatus) bool {
	return hasDevice(status, func(device *resourcev1.DeviceRequestAllocationResult) bool {
		return device.AdminAccess == nil || !*device.AdminAccess
	})
}

// ClaimReaches is ClaimHolds that counts admin access, too: whether containers with the claim see a GPU.
func ClaimReaches(status *resourcev1.ResourceClaimStatus) bool {
	return hasDevice(status, func(*resourcev1.DeviceRequestAllocationResult) bool { return true })
}

// hasDevice reports whether a device of NVIDIA's driver that matches is allocated.
func hasDevice(
	status *resourcev1.ResourceClaimStatus, matches func(*resourcev1.DeviceRequestAllocationResult) bool,
) bool {
	if status.Allocation == nil {
		return false
	}
	for i := range status.Allocation.Devices.Results {
		device := &status.Allocation.Devices.Results[i]
		if device.Driver == labels.DRADriver && matches(device) {
			return true
		}
	}
	return false
}

// Among returns which claims hold GPUs where these were read. Another one counts as holding some.
func Among(read []*resourcev1.ResourceClaim) Claims {
	holds := map[[2]string]bool{}
	for _, claim := range read {
		holds[[2]string{claim.Namespace, claim.Name}] = ClaimHolds(&claim.Status)
	}
	return func(namespace, name string) bool {
		held, isKnown := holds[[2]string{namespace, name}]
		return held || !isKnown
	}
}

// HasClaims reports whether the pod has resource claims, for whatever devices.
func HasClaims(pod *corev1.Pod) bool { return len(ClaimsOf(pod)) > 0 }

func holdsClaim(pod *corev1.Pod, claims Claims) bool {
	for _, name := range ClaimsOf(pod) {
		if claims == nil || claims(pod.Namespace, name) {
			return true
		}
	}
	return false
}

// ClaimsOf returns the names of the pod's claims: those that it names, those created from its templates, and the one
// that the scheduler has created for its extended resources.
func ClaimsOf(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.ResourceClaims {
		if name := pod.Spec.ResourceClaims[i].ResourceClaimName; name != nil {
			names = append(names, *name)
		}
	}
	for i := range pod.Status.ResourceClaimStatuses {
		if name := pod.Status.ResourceClaimStatuses[i].ResourceClaimName; name != nil {
			names = append(names, *name)
		}
	}
	if mapped := pod.Status.ExtendedResourceClaimStatus; mapped != nil && mapped.ResourceClaimName != "" {
		names = append(names, mapped.ResourceClaimName)
	}
	return names
}

// OfRequests returns the use of GPUs by the extended resources that containers of the pod request, whether or not the
// pod has ended.
func OfRequests(pod *corev1.Pod) Use {
	use := None
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			resources := &containers[i].Resources
			use = max(use, ofList(resources.Limits), ofList(resources.Requests))
		}
	}
	return use
}

func ofList(resources corev1.ResourceList) Use {
	use := None
	for name, quantity := range resources {
		switch {
		case quantity.Sign() <= 0:
		case labels.IsGPUResource(string(name)) || labels.IsDRAResource(string(name)):
			return Held
		case strings.HasPrefix(string(name), labels.VendorPrefix):
			use = Possible
		}
	}
	return use
}
