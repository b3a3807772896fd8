package operand

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
)

// Placement is the placement of one operand's pods, as the spec has it.
type Placement struct {
	v1.PlacementSpec
	// Field of the spec that has it, such as spec.dcgmExporter.
	Field string
	// PodSecurityContext replaces daemonsets.podSecurityContext, unless it is nil.
	PodSecurityContext *corev1.PodSecurityContext
	// OtherContainers are the containers of other operands that the same field applies to.
	OtherContainers []string
}

// PlacementOf returns the placement of the operand's pods; the zero value for an operand without pods.
func (in Input) PlacementOf(o *Operand) Placement {
	if o.Placement == nil {
		return Placement{}
	}
	return o.Placement(in)
}

// Selects decides whether a GPU node has the labels that the operand's own nodeSelector requires, else that of
// spec.daemonsets.
func (in Input) Selects(o *Operand, node nodeinfo.Facts) Decision {
	field, selector := in.nodeSelector(o)
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if value, exists := node.Labels[key]; !exists || value != string(selector[key]) {
			return Decision{
				Choice: Absent, Reason: v1.ReasonNotSelected,
				Message: fmt.Sprintf("%s.nodeSelector requires label %s=%s", field, key, selector[key]),
			}
		}
	}
	return Accept()
}

// nodeSelector returns the operand's nodeSelector, else that of all operands, and the block of the spec that has it.
func (in Input) nodeSelector(o *Operand) (field string, selector v1.Labels) {
	if placement := in.PlacementOf(o); len(placement.NodeSelector) > 0 {
		return placement.Field, placement.NodeSelector
	}
	return "spec.daemonsets", in.Spec.DaemonSets.NodeSelector
}

// MissingSelectorLabel returns a discovery label that the nodeSelector requires and the node does not have. Empty if
// there is none, or if the node differs from the selector in any other label.
func (in Input) MissingSelectorLabel(o *Operand, node nodeinfo.Facts) string {
	_, selector := in.nodeSelector(o)
	missing := ""
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		value, exists := node.Labels[key]
		switch {
		case exists && value == string(selector[key]):
		case exists || !labels.IsDiscoverable(key):
			return ""
		case missing == "":
			missing = key
		}
	}
	return missing
}

// priorityClass returns the priority class of the operand's pods, and the block of the spec that names it.
func (in Input) priorityClass(o *Operand) (field, name string) {
	if placement := in.PlacementOf(o); placement.PriorityClassName != "" {
		return placement.Field, placement.PriorityClassName
	}
	return "spec.daemonsets", in.Spec.DaemonSets.PriorityClassName
}

// Retains reports whether the node has the operand and keeps it even if no selector matches any longer: removing it
// would disrupt the GPU work on the node.
func (o *Operand) Retains(node nodeinfo.Facts) bool {
	return o.UpdatesOnDelete && node.Deploy[string(o.Name)] != ""
}

// InvalidSpec is an error that only a change of the spec can fix.
type InvalidSpec struct{ Message string }

func (e InvalidSpec) Error() string { return e.Message }
