package readiness

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Offer describes what pods can request on a node whose GPUs are shared or partitioned, such as "nvidia.com/gpu: 4 x 4
// shared = 16", with the product that GPU Feature Discovery then reports. It is empty if each GPU is one
// nvidia.com/gpu. replicas are those of CountGPUs.
func Offer(node *corev1.Node, replicas int) string {
	offer, whole := offerOf(node, replicas)
	if whole {
		return ""
	}
	return offer
}

// ForeignOffer describes what pods can request on a node whose device plugin is not the operator's; empty if nothing.
func ForeignOffer(node *corev1.Node) string {
	offer, _ := offerOf(node, 0)
	if offer == "" || Allocatable(node).State != Ready {
		return ""
	}
	return offer + ", by another device plugin: not validated"
}

// offerOf describes what pods can request on a node. whole: each GPU is one nvidia.com/gpu.
func offerOf(node *corev1.Node, replicas int) (offer string, whole bool) {
	product := node.Labels[labels.GPUProduct]
	whole = !isShared(node) && !strings.Contains(product, labels.ProductMIG) &&
		(replicas < 2 || node.Labels[labels.GPUReplicas] != "")
	var parts []string
	for name, quantity := range node.Status.Capacity {
		if Advertises(node, name) {
			whole = whole && name == labels.ResourceGPU
			parts = append(parts, fmt.Sprintf("%s: %s", name, shares(devicesOf(quantity), replicasOf(node, name, replicas))))
		}
	}
	if len(parts) == 0 {
		return "", whole
	}
	slices.Sort(parts)
	offer = strings.Join(parts, ", ")
	if strings.HasSuffix(product, labels.ProductShared) || strings.Contains(product, labels.ProductMIG) {
		offer += " (" + product + ")"
	}
	return offer, whole
}

// shares describes a number of devices, each of which is shared by so many pods.
func shares(total, replicas int) string {
	if replicas < 2 || total%replicas != 0 {
		return fmt.Sprint(total)
	}
	return fmt.Sprintf("%d x %d shared = %d", total/replicas, replicas, total)
}

// replicasOf returns how many pods share a device of the resource, by GPU Feature Discovery, or as configured for GPUs
// until that has reported.
func replicasOf(node *corev1.Node, name corev1.ResourceName, configured int) int {
	plain, _ := strings.CutSuffix(string(name), labels.SharedResourceSuffix)
	if plain == labels.ResourceGPU {
		if reported := node.Labels[labels.GPUReplicas]; reported != "" {
			return number(reported)
		}
		return configured
	}
	return number(node.Labels[plain+labels.ReplicasSuffix])
}
