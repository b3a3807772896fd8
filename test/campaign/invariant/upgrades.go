package invariant

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
	"github.com/clusterpolicy/gpu-operator/test/campaign/history"
)

// inProgress are the states of a node that an upgrade has cordoned, in their order; repeated so that the checks do not
// depend on the engine.
var inProgress = []string{
	"wait-for-jobs-required", "pod-deletion-required", "drain-required", "pod-restart-required", "validation-required",
}

// Other states of a node.
const (
	required = "upgrade-required"
	done     = "upgrade-done"
)

func stateOf(node *corev1.Node) string { return node.Labels[labels.UpgradeState] }

func upgrading(node *corev1.Node) bool { return slices.Contains(inProgress, stateOf(node)) }

// eachNode calls check with each stored revision of a node, and the one before, nil for none.
func (r *Run) eachNode(check func(world history.World, event history.Event, before, node *corev1.Node)) {
	r.replay(func(world history.World, event history.Event) {
		node, is := event.Object.(*corev1.Node)
		if !is || event.Gone {
			return
		}
		before, _ := event.Before.(*corev1.Node)
		check(world, event, before, node)
	})
}

// budget: at each revision, no more nodes are in an upgrade than may be.
func budget(r *Run, f *found) {
	r.eachNode(func(world history.World, event history.Event, _, _ *corev1.Node) {
		count := 0
		for _, node := range history.All[*corev1.Node](world) {
			if upgrading(node) {
				count++
			}
		}
		if count > r.MaxParallel {
			f.at(event, "%d nodes are in an upgrade, though %d may be", count, r.MaxParallel)
		}
	})
}

// oneWrite: a node in an upgrade is cordoned, and its record has the state of its label, at each revision.
func oneWrite(r *Run, f *found) {
	r.eachNode(func(_ history.World, event history.Event, _, node *corev1.Node) {
		if !upgrading(node) {
			return
		}
		var record struct {
			State string `json:"state"`
		}
		if err := json.Unmarshal([]byte(node.Annotations[labels.UpgradeRecord]), &record); err != nil ||
			record.State != stateOf(node) {
			f.at(event, "the label has state %q, and the record %q", stateOf(node), node.Annotations[labels.UpgradeRecord])
		}
		if !node.Spec.Unschedulable {
			f.at(event, "it is not cordoned in state %q", stateOf(node))
		}
	})
}

// order: the states of an upgrade follow each other in their order, and it ends with validation.
func order(r *Run, f *found) {
	r.eachNode(func(_ history.World, event history.Event, before, node *corev1.Node) {
		if before == nil || before.UID != node.UID || stateOf(before) == stateOf(node) {
			return
		}
		from, to := slices.Index(inProgress, stateOf(before)), slices.Index(inProgress, stateOf(node))
		switch last := len(inProgress) - 1; {
		case to >= 0 && to < from, to >= 0 && from < 0 && stateOf(before) != required,
			to < 0 && from >= 0 && (from != last || stateOf(node) != done):
			f.at(event, "the state %q follows %q", stateOf(node), stateOf(before))
		}
	})
}

// slotsHeld: a node begins its upgrade with a slot, and slots are written only as they were read.
func slotsHeld(r *Run, f *found) {
	r.eachNode(func(world history.World, event history.Event, before, node *corev1.Node) {
		if !upgrading(node) || before != nil && upgrading(before) {
			return
		}
		key := history.Key{Kind: history.ConfigMap, Namespace: r.Namespace, Name: labels.UpgradeSlots}
		var slot struct{ UID types.UID }
		granted, is := world[key].(*corev1.ConfigMap)
		if !is || json.Unmarshal([]byte(granted.Data[node.Name]), &slot) != nil || slot.UID != node.UID {
			f.at(event, "it begins its upgrade without a slot")
		}
	})
	versions := r.slotVersions()
	for _, write := range r.Writes {
		if isSlots(write) && write.Verb != fault.Create && !slices.Contains(versions, requiredVersion(write)) {
			f.add(write.String(), 0, "the slots are written without the version that was read")
		}
	}
}

// requiredVersion returns the resourceVersion without which a patch or deletion fails; empty if there is none.
func requiredVersion(write fault.Record) string {
	var patch struct {
		Metadata struct{ ResourceVersion string }
	}
	if write.Verb != fault.Delete {
		// A patch in another format has no such field.
		_ = json.Unmarshal(write.Body, &patch)
		return patch.Metadata.ResourceVersion
	}
	decoded, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(write.Body, nil, nil) // JSON or protobuf
	deletion, is := decoded.(*metav1.DeleteOptions)
	if err != nil || !is || deletion.Preconditions == nil || deletion.Preconditions.ResourceVersion == nil {
		return ""
	}
	return *deletion.Preconditions.ResourceVersion
}

// slotVersions returns the resourceVersions that the slots have had.
func (r *Run) slotVersions() []string {
	var found []string
	for _, event := range r.Events {
		if event.Kind == history.ConfigMap && event.Name == labels.UpgradeSlots && event.Object != nil {
			found = append(found, event.Object.GetResourceVersion())
		}
	}
	return found
}

// isSlots reports whether a write is of the slots, which the operator owns, and no policy controls.
func isSlots(write fault.Record) bool {
	return write.Resource == "configmaps" && write.Name == labels.UpgradeSlots
}
