package operand

import (
	"k8s.io/apimachinery/pkg/api/equality"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
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
		if driver.Driver.PodSecurityContext != nil || !SameDriver(in.Spec, driver.Spec) {
			pool.Driver = &driver.Driver
		}
		pools = append(pools, pool)
	}
	return pools
}

// SameDriver reports whether two specs lead to the same driver pods. How a driver is upgraded changes no pod.
func SameDriver(a, b effective.Spec) bool {
	return equality.Semantic.DeepEqual(DriverPodsOf(a), DriverPodsOf(b))
}

// DriverPods is what decides about the driver pods of a spec, at its paths in a ClusterPolicy.
type DriverPods struct {
	Driver     v1.DriverSpec     `json:"driver"`
	GDS        *v1.GDSSpec       `json:"gds"`
	GDRCopy    *v1.GDRCopySpec   `json:"gdrcopy"`
	DaemonSets v1.DaemonSetsSpec `json:"daemonsets"`
}

// DriverPodsOf returns what decides about the driver pods of a spec: with what the driver falls back to, and without
// what changes no pod.
func DriverPodsOf(spec effective.Spec) DriverPods {
	own, all := *spec.Driver, spec.DaemonSets
	own.UpgradePolicy, own.NodeSelector, own.UseNvidiaDriverCRD = nil, nil, nil
	if len(own.Tolerations) == 0 {
		own.Tolerations = all.Tolerations
	}
	if own.PriorityClassName == "" {
		own.PriorityClassName = all.PriorityClassName
	}
	return DriverPods{Driver: own, GDS: spec.GDS, GDRCopy: spec.GDRCopy, DaemonSets: v1.DaemonSetsSpec{
		Labels: all.Labels, Annotations: all.Annotations, PodSecurityContext: all.PodSecurityContext,
	}}
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
