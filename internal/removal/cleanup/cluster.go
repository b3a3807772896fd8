package cleanup

import (
	"cmp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/clusterpolicy/gpu-operator/internal/kube/leadership"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade/gpuuse"
)

// Cluster has the objects of a cluster that a plan depends on.
type Cluster struct {
	Policies []*unstructured.Unstructured
	// Drivers are the NVIDIADriver objects, which only a policy uses.
	Drivers []*unstructured.Unstructured
	// Objects are those of the kinds that the operator applies. Others' are ignored.
	Objects    []*unstructured.Unstructured
	Nodes      []corev1.Node
	Pods       []corev1.Pod
	Namespaces []metav1.PartialObjectMetadata
	Leases     []coordinationv1.Lease
	// Claims are the resource claims, if a pod has any. One that is not among them counts as holding GPUs.
	Claims []*resourcev1.ResourceClaim
	Now    time.Time
}

// operators returns what shows that an operator is at work: its ready pods, and the holders of leases that have not
// expired. Those of NVIDIA's operator count, too: the ClusterPolicy is its.
func (c *Cluster) operators() []string {
	var found []string
	for i := range c.Pods {
		if pod := &c.Pods[i]; pod.Labels[labels.Component] == labels.ManagedByValue && readiness.PodIsReady(pod) {
			found = append(found, "pod "+nameOf(pod))
		}
	}
	for i := range c.Leases {
		if lease := &c.Leases[i]; lease.Name == leadership.LeaseName && c.isHeld(lease) {
			found = append(found, "lease "+nameOf(lease)+" is held by "+*lease.Spec.HolderIdentity)
		}
	}
	slices.Sort(found)
	return found
}

func (c *Cluster) isHeld(lease *coordinationv1.Lease) bool {
	spec := &lease.Spec
	if ptr.Deref(spec.HolderIdentity, "") == "" || spec.RenewTime == nil {
		return false
	}
	return c.Now.Before(spec.RenewTime.Add(time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second))
}

// busyNodes returns the nodes with marks or pods of the stack where other pods may use GPUs.
func (c *Cluster) busyNodes(nodes []Node, stack map[string]bool) []BusyNode {
	concerned := map[string]bool{}
	for _, node := range nodes {
		concerned[node.Name] = true
	}
	users, classes, claims := map[string][]string{}, c.runtimeClasses(), gpuuse.Among(c.Claims)
	for i := range c.Pods {
		pod := &c.Pods[i]
		switch _, isOperand := pod.Labels[labels.Operand]; {
		case pod.Spec.NodeName == "":
		case isOperand && stack[pod.Namespace]:
			concerned[pod.Spec.NodeName] = true
		case slices.ContainsFunc(classes, func(class string) bool {
			return gpuuse.Of(pod, class, claims) != gpuuse.None
		}):
			users[pod.Spec.NodeName] = append(users[pod.Spec.NodeName], nameOf(pod))
		}
	}
	var busy []BusyNode
	for node, pods := range users {
		if concerned[node] {
			slices.Sort(pods)
			busy = append(busy, BusyNode{Name: node, Pods: pods})
		}
	}
	slices.SortFunc(busy, func(a, b BusyNode) int { return cmp.Compare(a.Name, b.Name) })
	return busy
}

// runtimeClasses are the main ones of the policies, by which pods get GPUs.
func (c *Cluster) runtimeClasses() []string {
	classes := []string{labels.DefaultRuntimeClass}
	for _, policy := range c.Policies {
		class, named, err := unstructured.NestedString(policy.Object, "spec", "operator", "runtimeClass")
		if err == nil && named {
			classes = append(classes, class)
		}
	}
	return classes
}

// nameOf returns namespace/name of an object, or only the name.
func nameOf(object metav1.Object) string {
	return strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/")
}
