package overview

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Usage is what pods request of the devices that device plugins offer on nodes. What they get by resource claims (DRA)
// is not of these. The zero Usage is empty.
type Usage struct {
	pods map[types.UID]podUsage
	// sum by the name of the node.
	sum map[string]map[corev1.ResourceName]int64
}

type podUsage struct {
	node      string
	resources Requests
}

// Requests are how many devices of each resource of GPUs a pod requests.
type Requests map[corev1.ResourceName]int64

// GPURequests returns what a pod requests by extended resources, those that DeviceClasses of NVIDIA's DRA driver imply
// included; empty if nothing.
func GPURequests(pod *corev1.Pod) Requests {
	found := Requests{}
	for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		isGPU := labels.IsGPUResource(string(name)) || labels.IsDRAResource(string(name))
		if isGPU && quantity.Sign() > 0 {
			found[name] = quantity.Value()
		}
	}
	return found
}

// ofPlugins returns what a pod on a node has from device plugins: not what the scheduler has mapped to a claim, which
// is taken from the devices of the DRA driver.
func ofPlugins(pod *corev1.Pod) Requests {
	found := GPURequests(pod)
	if mapped := pod.Status.ExtendedResourceClaimStatus; mapped != nil {
		for i := range mapped.RequestMappings {
			delete(found, corev1.ResourceName(mapped.RequestMappings[i].ResourceName))
		}
	}
	return found
}

// Set takes a pod into account, in place of what was known of it.
func (u *Usage) Set(pod *corev1.Pod) {
	u.Delete(pod.UID)
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if ended || pod.Spec.NodeName == "" {
		return
	}
	one := podUsage{node: pod.Spec.NodeName, resources: ofPlugins(pod)}
	if len(one.resources) == 0 {
		return
	}
	if u.pods == nil {
		u.pods, u.sum = map[types.UID]podUsage{}, map[string]map[corev1.ResourceName]int64{}
	}
	u.pods[pod.UID] = one
	u.add(one, 1)
}

// Delete forgets a pod.
func (u *Usage) Delete(pod types.UID) {
	if one, known := u.pods[pod]; known {
		delete(u.pods, pod)
		u.add(one, -1)
	}
}

func (u *Usage) add(one podUsage, factor int64) {
	if u.sum[one.node] == nil {
		u.sum[one.node] = map[corev1.ResourceName]int64{}
	}
	on := u.sum[one.node]
	for name, count := range one.resources {
		if on[name] += factor * count; on[name] == 0 {
			delete(on, name)
		}
	}
	if len(on) == 0 {
		delete(u.sum, one.node)
	}
}

// Of returns how many devices of a resource pods request on a node.
func (u *Usage) Of(node string, name corev1.ResourceName) int64 { return u.sum[node][name] }
