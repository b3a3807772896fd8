package operand

import (
	"fmt"
	"maps"
	"slices"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
)

// Placement is what the spec says of where the pods of one operand go, and of what they are given there.
type Placement struct {
	v1.PlacementSpec
	// Field of the spec that says so, such as spec.dcgmExporter.
	Field string
	// OtherContainers are the containers of other operands that the same field is for.
	OtherContainers []string
}

// PlacementOf is what the spec says of where the operand's pods go; nothing of an operand that has none.
func (in Input) PlacementOf(o *Operand) Placement {
	if o.Placement == nil {
		return Placement{}
	}
	return o.Placement(in)
}

// Selects tells whether the labels of a GPU node are those that the spec asks for: by the operand's own
// nodeSelector, else by that of all.
func (in Input) Selects(o *Operand, node nodeinfo.Facts) Decision {
	field, selector := in.nodeSelector(o)
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if value, exists := node.Labels[key]; !exists || value != string(selector[key]) {
			return Decision{
				Choice: Absent, Reason: v1.ReasonNotSelected,
				Message: fmt.Sprintf("%s.nodeSelector asks for label %s=%s", field, key, selector[key]),
			}
		}
	}
	return Installed()
}

// nodeSelector is that of the operand, or that of all, and the block of the spec that has it.
func (in Input) nodeSelector(o *Operand) (field string, selector v1.Labels) {
	if placement := in.PlacementOf(o); len(placement.NodeSelector) > 0 {
		return placement.Field, placement.NodeSelector
	}
	return "spec.daemonsets", in.Spec.DaemonSets.NodeSelector
}

// MissingSelectorLabel is a label of discovery that the node lacks and that the spec asks for; empty if there is none,
// or if the node has another value than the spec asks for.
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

// priorityClass is that of the operand's pods, and the block of the spec that names it.
func (in Input) priorityClass(o *Operand) (field, name string) {
	if placement := in.PlacementOf(o); placement.PriorityClassName != "" {
		return placement.Field, placement.PriorityClassName
	}
	return "spec.daemonsets", in.Spec.DaemonSets.PriorityClassName
}

// Retains tells whether the node has the operand already, and keeps it whatever its labels become: replacing
// it would disturb the GPU work of the node.
func (o *Operand) Retains(node nodeinfo.Facts) bool {
	return o.UpdatesOnDelete && node.Deploy[string(o.Name)] != ""
}

// InvalidSpec is an error about what the spec asks for: a change of the spec mends it, and nothing else does.
type InvalidSpec struct{ Message string }

func (e InvalidSpec) Error() string { return e.Message }
