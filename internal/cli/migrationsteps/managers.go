package migrationsteps

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/removal/cleanup"
)

// isByNVIDIA reports whether an entry of metadata.managedFields has what NVIDIA's operator has written.
func isByNVIDIA(entry *metav1.ManagedFieldsEntry) bool {
	return entry.Manager == labels.NVIDIAFieldManager && entry.Operation == metav1.ManagedFieldsOperationUpdate &&
		entry.Subresource == ""
}

// fieldsOf returns the fields of an entry of metadata.managedFields; nil if it has none.
func fieldsOf(entry *metav1.ManagedFieldsEntry) map[string]any {
	fields := map[string]any{}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return nil
	}
	return fields
}

// hasNVIDIAsLayout reports whether NVIDIA's operator, and no other writer, has set the label nvidia.com/mig.config of a
// Node, and no annotation records that yet. It only sets all-disabled. This operator writes the label and the
// annotation together, so that its own labels are not taken for NVIDIA's, although its field manager has the same name.
func hasNVIDIAsLayout(node *unstructured.Unstructured) bool {
	_, recorded := node.GetAnnotations()[labels.MIGConfigWritten]
	if recorded || node.GetLabels()[labels.MIGConfig] != labels.MIGAllDisabled {
		return false
	}
	found := false
	for _, entry := range node.GetManagedFields() {
		_, owns, _ := unstructured.NestedFieldNoCopy(fieldsOf(&entry), "f:metadata", "f:labels", "f:"+labels.MIGConfig)
		if !owns {
			continue
		}
		if !isByNVIDIA(&entry) {
			return false
		}
		found = true
	}
	return found
}

// recordLayouts returns the step that makes the MIG layouts that NVIDIA's operator has requested this operator's, so
// that they are removed with the stack.
func (c *Cluster) recordLayouts() []Step {
	return nodeStep(ActionRecordLayout, c.nodesThat(hasNVIDIAsLayout))
}

// nodeStep returns a step for nodes; none without nodes.
func nodeStep(action Action, nodes []string) []Step {
	if len(nodes) == 0 {
		return nil
	}
	return []Step{{Action: action, Object: cleanup.Object{Kind: kindNode, Resource: "node"}, Nodes: nodes}}
}

// isUnclaimed reports whether an object is a Role or RoleBinding of NVIDIA's operator that this operator's installers
// may have under its name, and no installer has taken: the bundle of the Operator Lifecycle Manager has other names.
// What kubectl gpu migrate does with owner references does not count.
func isUnclaimed(object *unstructured.Unstructured) bool {
	kind := object.GetKind()
	if kind != "Role" && kind != "RoleBinding" || !isShipped(object) || len(ownersLeft(object)) > 0 ||
		releaseOf(object) != (Release{}) {
		return false
	}
	byNVIDIA := false
	for _, entry := range object.GetManagedFields() {
		if isByNVIDIA(&entry) {
			byNVIDIA = true
			continue
		}
		fields := fieldsOf(&entry)
		unstructured.RemoveNestedField(fields, "f:metadata", "f:ownerReferences")
		if metadata, _, _ := unstructured.NestedMap(fields, "f:metadata"); len(metadata) == 0 {
			delete(fields, "f:metadata")
		}
		if len(fields) > 0 {
			return false
		}
	}
	return byNVIDIA
}
