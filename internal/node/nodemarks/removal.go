package nodemarks

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/startuptaint"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// Removal removes all that the operator has written on one Node.
type Removal struct {
	Metadata
	// Taints are those that are removed, and kept all others.
	Taints, kept []corev1.Taint
	// Uncordon: the operator has cordoned the node for a driver upgrade, for a MIG layout or because of an unhealthy GPU,
	// and it is still cordoned.
	Uncordon bool
	// Conditions are the types of the operator's conditions that the node has.
	Conditions []string
	node       *corev1.Node
}

// Remove returns what removes all that the operator has written on the node: also the state of a driver upgrade, which
// ends, and the start-up taint that only the operator removes.
func Remove(catalogue operand.Catalogue, node *corev1.Node) *Removal {
	r := &Removal{
		Metadata: Released(catalogue, node, ""), Conditions: Conditions(node), node: node,
	}
	r.endUpgrade()
	r.endDrain()
	r.endHealthAction()
	r.removeTaints()
	return r
}

// IsEmpty reports whether the operator has written nothing on the node.
func (r *Removal) IsEmpty() bool { return !r.changesNode() && len(r.Conditions) == 0 }

func (r *Removal) changesNode() bool {
	return len(r.Labels) > 0 || len(r.Annotations) > 0 || len(r.Taints) > 0 || r.Uncordon
}

// endUpgrade adds the removal of the state of a driver upgrade. The cordon is the operator's only by the record of this
// Node: another one was copied from a deleted Node.
func (r *Removal) endUpgrade() {
	recorded, exists := r.node.Annotations[labels.UpgradeRecord]
	if !exists && !WasWritten(r.node) {
		return
	}
	r.DropUpgrade(r.node)
	record, err := upgrade.DecodeRecord(recorded)
	r.Uncordon = err == nil && record.UID == r.node.UID && record.Cordoned && r.node.Spec.Unschedulable
}

// endDrain adds the removal of what was done to change the MIG layout, but for its record: that goes with the ones of
// driver upgrades (DropUpgrade), or with all annotations of the operator (HandBack).
func (r *Removal) endDrain() {
	drain, err := upgrade.DecodeDrain(r.node.Annotations[labels.MIGDrain])
	if err == nil && drain.Cordons(r.node.UID) && r.node.Spec.Unschedulable {
		r.Uncordon = true
	}
}

// endHealthAction adds the removal of what was done because of an unhealthy GPU, but for the taint. What a user has
// annotated stays.
func (r *Removal) endHealthAction() {
	r.forget(r.node, labels.HealthRecord)
	record, err := healthaction.DecodeRecord(r.node.Annotations[labels.HealthRecord])
	if err == nil && record.Cordons(r.node.UID) && r.node.Spec.Unschedulable {
		r.Uncordon = true
	}
}

// removeTaints adds the removal of the taints that the operator has added, and of its own taints. A kubelet may have
// registered the start-up taint. Other start-up taints of the policy are those of node groups.
func (r *Removal) removeTaints() {
	now := startuptaint.Taints{All: r.node.Spec.Taints}
	if recorded := r.node.Annotations[labels.StartupTaints]; recorded != "" {
		now.Restored = strings.Split(recorded, ",")
	}
	r.forget(r.node, labels.StartupTaints)
	r.kept = startuptaint.Next(OwnTaints(), now, startuptaint.Remove).All
	for _, taint := range r.node.Spec.Taints {
		if !slices.Contains(r.kept, taint) {
			r.Taints = append(r.Taints, taint)
		}
	}
}

// OwnTaints specifies the operator's own taints: the start-up taint with all its effects, which no other component
// removes, and that of a node with an unhealthy GPU.
func OwnTaints() v1.NodeStartupSpec {
	own := v1.NodeStartupSpec{Taints: []v1.StartupTaint{
		{Key: labels.TaintUnhealthy, Effect: corev1.TaintEffectNoSchedule},
	}}
	for _, effect := range []corev1.TaintEffect{
		corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute,
	} {
		own.Taints = append(own.Taints, v1.StartupTaint{Key: labels.TaintNotReady, Effect: effect})
	}
	return own
}

// NodePatch returns the merge patch of the Node; nil if it has nothing to remove. It fails if the Node has changed
// since it was read, or was replaced by another one.
func (r *Removal) NodePatch() map[string]any {
	if !r.changesNode() {
		return nil
	}
	metadata := map[string]any{"uid": r.node.UID, "resourceVersion": r.node.ResourceVersion}
	if len(r.Labels) > 0 {
		metadata["labels"] = r.Labels
	}
	if len(r.Annotations) > 0 {
		metadata["annotations"] = r.Annotations
	}
	patch, spec := map[string]any{"metadata": metadata}, map[string]any{}
	if len(r.Taints) > 0 {
		spec["taints"] = append([]corev1.Taint{}, r.kept...)
	}
	if r.Uncordon {
		spec["unschedulable"] = nil
	}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	return patch
}

// StatusPatch returns the strategic merge patch of the Node's status; nil if it has nothing to remove.
func (r *Removal) StatusPatch() map[string]any {
	if len(r.Conditions) == 0 {
		return nil
	}
	return map[string]any{"status": map[string]any{"conditions": DeletedConditions(r.Conditions...)}}
}

// Conditions returns the types of the operator's conditions that the node has.
func Conditions(node *corev1.Node) []string {
	return slices.DeleteFunc(labels.Conditions(), func(kind string) bool {
		return !slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return string(condition.Type) == kind
		})
	})
}

// DeletedConditions returns the entries of a strategic merge patch that delete the conditions of these types.
func DeletedConditions(types ...string) []any {
	var entries []any
	for _, kind := range types {
		entries = append(entries, map[string]string{"type": kind, "$patch": "delete"})
	}
	return entries
}
