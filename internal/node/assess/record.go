package assess

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

// Record is what the conditions of a node say, for programs: the node controller after a start of the operator, and
// kubectl gpu. They read no message, so that each can be reworded. It is the annotation nvidia.com/gpu-operator.report,
// in JSON, which is written together with the conditions.
type Record struct {
	// Stage and Operand of a node that is not ready; empty for a ready one.
	Stage   v1.Stage `json:"stage,omitempty"`
	Operand string   `json:"operand,omitempty"`
	// Pod is the name of the failing pod, so that the detail of its failure replaces the one of an earlier pod.
	Pod string `json:"pod,omitempty"`
	// ByClaims: the node is ready, and only resource claims get its GPUs.
	ByClaims bool `json:"byClaims,omitempty"`
	// Neighbours that the condition nvidia.com/GPUReady depends on, at most maxNeighbours + 1.
	Neighbours []neighbour.Neighbour `json:"neighbours,omitempty"`
	// HeldConfig is the one of Input, if the condition reports it.
	HeldConfig string `json:"heldConfig,omitempty"`
	// FaultsEnd is where the faults end in the message of nvidia.com/GPUHealthy, in bytes, if what is done with the node
	// because of them follows; otherwise 0.
	FaultsEnd int `json:"faultsEnd,omitempty"`
}

// RecordOf returns the record of a node; empty if it has none, or one of another program.
func RecordOf(node *corev1.Node) (found Record) {
	if encoded := node.Annotations[labels.ReportRecord]; encoded != "" {
		if json.Unmarshal([]byte(encoded), &found) != nil {
			return Record{}
		}
	}
	return found
}

// Annotation returns the value of the annotation; nil for an empty record, which has none.
func (r Record) Annotation() *string {
	encoded, err := json.Marshal(r)
	if err != nil || string(encoded) == "{}" {
		return nil // Strings, numbers and lists of them are always encoded.
	}
	value := string(encoded)
	return &value
}

// IsOf reports whether the node has this record.
func (r Record) IsOf(node *corev1.Node) bool {
	wanted := r.Annotation()
	shown, exists := node.Annotations[labels.ReportRecord]
	return wanted == nil && !exists || wanted != nil && *wanted == shown
}

// Record returns the record of the assessment. What before has of nvidia.com/GPUHealthy stays.
func (a *Assessment) Record(before Record) Record {
	record := Record{
		ByClaims: a.Ready() && a.Offer == claimsOffer, HeldConfig: a.noted.heldConfig, Neighbours: a.noted.neighbours,
		FaultsEnd: before.FaultsEnd,
	}
	if !a.Ready() {
		record.Stage, record.Operand, record.Pod = a.Stage, a.Operand, a.Pod
	}
	return record
}

// Cause returns the stage and the operand of a node that is not ready, and the message of its condition without them.
// Of a condition of another writer, which the record is not of, they are empty.
func (r Record) Cause(message string) (stage v1.Stage, operand, rest string) {
	rest, isOf := strings.CutPrefix(message, causePrefix(r.Stage, r.Operand))
	if r.Stage == "" || !isOf {
		return "", "", message
	}
	return r.Stage, r.Operand, rest
}

// notes are what findings leave for the record.
type notes struct {
	neighbours []neighbour.Neighbour
	heldConfig string
}

// add adds the notes of a finding. The neighbours stay in their order, each once.
func (n *notes) add(more notes) {
	for _, other := range more.neighbours {
		if !slices.Contains(n.neighbours, other) {
			n.neighbours = append(n.neighbours, other)
		}
	}
	if more.heldConfig != "" {
		n.heldConfig = more.heldConfig
	}
}
