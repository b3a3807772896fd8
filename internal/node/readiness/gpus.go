package readiness

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// GPUs are the GPUs of one node as its discovery, its driver and its kubelet count them.
type GPUs struct {
	// Total is the number of GPUs, and Usable how many of them pods can get. Of GPUs that are shared or partitioned, the
	// kubelet counts only parts: then Usable is the share of Total that is left, rounded down.
	Total, Usable int
	// onBus are bound to the driver on the PCI bus. seen are those that the driver sees, by GPU Feature Discovery and the
	// device plugin alike. 0 if unknown.
	onBus, seen int
	// lost describes each resource of which the kubelet cannot give all to pods, such as 1 of 8 nvidia.com/gpu, sorted.
	lost []string
	// faults are what the health agent reports, and gone is what the validator does: the GPUs that have been lost since
	// the validation.
	faults, gone string
}

// CountGPUs counts the GPUs of a node; the zero GPUs if it advertises none. countsBus: node discovery counts those on
// the PCI bus. replicas is how many pods share a GPU by the configuration of the node, for one on which GPU Feature
// Discovery has not reported that: shares are no GPUs.
func CountGPUs(node *corev1.Node, countsBus bool, replicas int) GPUs {
	capacity, allocatable, lost := gpuResources(node)
	if capacity == 0 {
		return GPUs{}
	}
	counted, partitioned := countedGPUs(node), isPartitioned(node)
	g := GPUs{lost: lost}
	if countsBus {
		g.onBus = number(node.Annotations[labels.GPUsOnBus])
	}
	switch {
	case partitioned:
	case counted == 0 && capacity < g.onBus:
		// Sharing only adds to the capacity.
		g.seen = capacity
	case capacity == counted*max(number(node.Labels[labels.GPUReplicas]), 1):
		g.seen = counted
	}
	g.Total = max(g.onBus, counted)
	if g.Total == 0 || counted > 0 && !partitioned && !isShared(node) {
		g.Total = max(g.Total, devices(node, capacity, partitioned, replicas))
	}
	g.Usable = g.Total * min(allocatable, capacity) / capacity
	if g.missing() > 0 {
		g.Usable = min(g.Usable, g.seen)
	}
	return g
}

// devices returns how many devices the capacity of a node is of: pods that share one each count.
func devices(node *corev1.Node, capacity int, partitioned bool, replicas int) int {
	if reported := node.Labels[labels.GPUReplicas]; reported != "" {
		replicas = number(reported)
	}
	if partitioned || replicas < 2 || capacity%replicas != 0 {
		return capacity
	}
	return capacity / replicas
}

// ClaimableGPUs counts the GPUs of a node that only resource claims get: those that the driver sees or that are on the
// PCI bus. What a kubelet still has of an earlier device plugin does not count.
func ClaimableGPUs(node *corev1.Node, countsBus bool) GPUs {
	g := GPUs{Total: countedGPUs(node)}
	if countsBus {
		g.Total = max(g.Total, number(node.Annotations[labels.GPUsOnBus]))
	}
	g.Usable = g.Total
	return g
}

// WithFaults adds what the health agent of the node reports. Pods cannot get a GPU that is lost, even if the device
// plugin has not noticed it.
func (g GPUs) WithFaults(report gpuhealth.Report) GPUs {
	if g.Total == 0 {
		return g
	}
	g.faults = report.Text()
	g.Usable = min(g.Usable, max(g.Total-report.Lost(), 0))
	return g
}

// WithLost adds the number of GPUs that have been lost since the validation, and the validator's words.
func (g GPUs) WithLost(count int, words string) GPUs {
	if g.Total == 0 || count == 0 {
		return g
	}
	g.gone = words
	g.Usable = min(g.Usable, max(g.Total-count, 0))
	return g
}

// gpuResources returns the sums of the GPU resources of a node, and describes those that are not all allocatable.
func gpuResources(node *corev1.Node) (capacity, allocatable int, lost []string) {
	for name, quantity := range node.Status.Capacity {
		if !Advertises(node, name) {
			continue
		}
		left := node.Status.Allocatable[name]
		all, usable := devicesOf(quantity), devicesOf(left)
		capacity, allocatable = min(capacity+all, maxDevices), min(allocatable+usable, maxDevices)
		if usable < all {
			lost = append(lost, fmt.Sprintf("%d of %d %s", all-usable, all, name))
		}
	}
	slices.Sort(lost)
	return capacity, allocatable, lost
}

// maxDevices bounds the devices of a node, so that products of two numbers of them do not overflow, and the status has
// a number for them. maxCount bounds the numbers in labels and annotations: what is larger is no count.
const (
	maxDevices = math.MaxInt32
	maxCount   = 1 << 20
)

// devicesOf returns the number of devices that a quantity stands for, which anyone who may write the Node can write.
func devicesOf(quantity resource.Quantity) int {
	return int(min(max(quantity.Value(), 0), maxDevices))
}

// Advertises reports whether the device plugin of a node advertises devices of a resource of GPUs, healthy or not. The
// kubelet keeps the capacity of a resource for five minutes after the plugin has stopped to advertise it, as when GPUs
// were partitioned or their shares renamed. There is nothing to give of it then, but of another one.
func Advertises(node *corev1.Node, name corev1.ResourceName) bool {
	capacity, allocatable := node.Status.Capacity[name], node.Status.Allocatable[name]
	if !labels.IsGPUResource(string(name)) || capacity.Sign() <= 0 {
		return false
	}
	return allocatable.Sign() > 0 || !hasGPU(node.Status.Allocatable) || isCounted(node, name)
}

// isCounted reports whether GPU Feature Discovery counts devices that are advertised under the name. It does not
// distinguish shares with a name of their own from others.
func isCounted(node *corev1.Node, name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), labels.ResourceMIGPrefix) {
		return number(node.Labels[string(name)+labels.CountSuffix]) > 0
	}
	for other, quantity := range node.Status.Allocatable {
		if quantity.Sign() > 0 && labels.IsGPUResource(string(other)) &&
			!strings.HasPrefix(string(other), labels.ResourceMIGPrefix) {
			return false
		}
	}
	return number(node.Labels[labels.GPUReplicas]) > 0
}

// countedGPUs returns how many GPUs GPU Feature Discovery has counted; 0 if unknown. Of several models it counts only
// one. Where each GPU is one kind of MIG device, it counts those instead.
func countedGPUs(node *corev1.Node) int {
	if strings.Contains(node.Labels[labels.GPUProduct], labels.ProductMIG) {
		return 0
	}
	return number(node.Labels[labels.GPUCount])
}

// isShared reports whether GPU Feature Discovery reports that several pods share a GPU.
func isShared(node *corev1.Node) bool {
	strategy := node.Labels[labels.GPUSharing]
	return strategy != "" && strategy != "none"
}

// isPartitioned reports whether the node advertises MIG devices as such.
func isPartitioned(node *corev1.Node) bool {
	for name := range node.Status.Capacity {
		if strings.HasPrefix(string(name), labels.ResourceMIGPrefix) && Advertises(node, name) {
			return true
		}
	}
	return false
}

// number returns a count in a label or an annotation, 0 if there is none.
func number(value string) int {
	count, err := strconv.Atoi(value)
	if err != nil || count < 0 || count > maxCount {
		return 0
	}
	return count
}

func (g GPUs) missing() int {
	if g.seen == 0 {
		return 0
	}
	return max(g.onBus-g.seen, 0)
}

// Verdict reports a loss of GPUs. It is Failed if fewer GPUs are usable than required: a number, or a percentage of
// all GPUs. If enough are left, it is Ready with the reason of the loss.
func (g GPUs) Verdict(required intstr.IntOrString) Verdict {
	if g.Usable >= g.Total {
		return Verdict{}
	}
	verdict := Verdict{Reason: v1.ReasonGPUsUnhealthy}
	usable := text.Join(fmt.Sprintf("%d of %d GPUs usable", g.Usable, g.Total), g.faults)
	separator := ": "
	if g.faults != "" {
		separator = "; "
	}
	switch {
	case g.missing() > 0:
		verdict.Reason = v1.ReasonGPUsMissing
		verdict.Message = fmt.Sprintf(
			"%s%sthe driver does not see %d of %d GPUs on the PCI bus", usable, separator, g.missing(), g.onBus)
	case g.gone != "":
		verdict.Reason = v1.ReasonGPUsMissing
		verdict.Message = usable + separator + g.gone
	case len(g.lost) > 0:
		verdict.Message = fmt.Sprintf("%s%sthe device plugin reports %s as unhealthy", usable, separator,
			strings.Join(g.lost, ", "))
	default:
		verdict.Message = usable
	}
	needed, err := intstr.GetScaledValueFromIntOrPercent(&required, g.Total, true)
	if err != nil || g.Usable < min(needed, g.Total) {
		verdict.State = Failed
	}
	return verdict
}
