package operand

import (
	"cmp"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// NVIDIADriver is the driver that an NVIDIADriver object declares.
type NVIDIADriver struct {
	// Name of the object.
	Name string
	// Pool is the name of its node pool, which may differ.
	Pool string
	// Default makes it the driver of the GPU nodes that no other object selects.
	Default bool
	// NodeSelector selects the nodes. Empty selects all GPU nodes, unless Default.
	NodeSelector v1.NodePoolSelector
	// Spec is that of the policy with the driver of the object.
	Spec effective.Spec
	// Driver has the fields of the object, as those of a node pool.
	Driver v1.NodePoolDriverSpec
	// Refused is why the object cannot be used, independent of nodes; Accept otherwise.
	Refused Decision
}

// UsesNVIDIADrivers reports whether NVIDIADriver objects declare the drivers.
func (in Input) UsesNVIDIADrivers() bool { return *in.Spec.Driver.UseNvidiaDriverCRD }

// DriverPools returns a node pool for each NVIDIADriver object, in their order. One whose driver equals that of the
// spec overrides nothing, so that a DaemonSet which runs already keeps its pods.
func (in Input) DriverPools() []NodePool {
	pools := make([]NodePool, 0, len(in.NVIDIADrivers))
	for _, driver := range in.NVIDIADrivers {
		pool := NodePool{
			NodePoolSpec:     v1.NodePoolSpec{Name: driver.Pool},
			Spec:             driver.Spec,
			SelectorDecision: driver.Refused,
			OfNVIDIADriver:   true,
		}
		if !driver.SameDriver(in.Spec) {
			pool.Driver = &driver.Driver
		}
		pools = append(pools, pool)
	}
	return pools
}

// SameDriver reports whether an object leads to the same driver pods as a spec. How a driver is upgraded changes no
// pod.
func (d *NVIDIADriver) SameDriver(spec effective.Spec) bool {
	return equality.Semantic.DeepEqual(DriverPodsOf(spec, nil), DriverPodsOf(d.Spec, d.Driver.PodSecurityContext))
}

// DriverPods is what decides about the driver pods of a spec, at its paths in a ClusterPolicy.
type DriverPods struct {
	Driver     v1.DriverSpec     `json:"driver"`
	GDS        *v1.GDSSpec       `json:"gds"`
	GDRCopy    *v1.GDRCopySpec   `json:"gdrcopy"`
	DaemonSets v1.DaemonSetsSpec `json:"daemonsets"`
}

// DriverPodsOf returns what decides about the driver pods of a spec: with what the driver gets from spec.daemonsets,
// and without what changes no pod. The security context of the pods is that of spec.daemonsets if own is nil.
func DriverPodsOf(spec effective.Spec, own *corev1.PodSecurityContext) DriverPods {
	driver, all := *spec.Driver, spec.DaemonSets
	driver.UpgradePolicy, driver.NodeSelector, driver.UseNvidiaDriverCRD, driver.UseOpenKernelModules = nil, nil, nil, nil
	if len(driver.Tolerations) == 0 {
		driver.Tolerations = all.Tolerations
	}
	driver.PriorityClassName = cmp.Or(driver.PriorityClassName, all.PriorityClassName)
	driver.Labels = merged(all.Labels, driver.Labels)
	driver.Annotations = merged(all.Annotations, driver.Annotations)
	pods := DriverPods{Driver: driver, GDS: spec.GDS, GDRCopy: spec.GDRCopy}
	pods.DaemonSets.PodSecurityContext = cmp.Or(own, all.PodSecurityContext)
	return pods
}

func merged[M ~map[string]V, V any](all, own M) M {
	both := M{}
	maps.Copy(both, all)
	maps.Copy(both, own)
	return both
}

// NVIDIADriversOf returns the indexes of the objects whose driver the node is to get: one if all is well, none if no
// object selects the node, or those that conflict.
func NVIDIADriversOf(drivers []NVIDIADriver, node nodeinfo.Facts) []int {
	var selecting, defaults []int
	for i := range drivers {
		switch {
		case drivers[i].Default:
			defaults = append(defaults, i)
		case drivers[i].selects(node):
			selecting = append(selecting, i)
		}
	}
	if len(selecting) == 0 {
		return defaults
	}
	return selecting
}

// selects reports whether the node has the labels of the nodeSelector. A missing discovery label does not take the
// driver from a node, as discovery may be restarting.
func (d *NVIDIADriver) selects(node nodeinfo.Facts) bool {
	for key, want := range d.NodeSelector {
		value, exists := node.Labels[key]
		lost := !exists && labels.IsDiscoverable(key) && node.Labels[labels.DriverOwner] == d.Name
		if !lost && (!exists || value != string(want)) {
			return false
		}
	}
	return true
}
