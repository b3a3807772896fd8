package healthaction

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// State is how far an action has got.
type State string

const (
	// Claimed: the node has a place among those that may be acted on, and nothing was done yet.
	Claimed State = "claimed"
	// Done: the taint or the cordon is set.
	Done State = "done"
	// Undone: someone else has removed it. It is not set again for the same fault.
	Undone State = "undone"
)

// Record is the annotation labels.HealthRecord of a Node.
type Record struct {
	// UID of the Node. A record with another one was copied from a deleted Node and is ignored.
	UID   types.UID `json:"uid"`
	State State     `json:"state"`
	// Action is taint or cordon.
	Action v1.HealthAction `json:"action"`
	// Fault is the ID of the fault that the action is for.
	Fault string `json:"fault"`
	// Undone are the IDs of other faults for which someone has undone an action.
	Undone []string `json:"undone,omitempty"`
}

// undone returns the IDs of all faults for which someone has undone an action.
func (r *Record) undone() []string {
	switch {
	case r == nil:
		return nil
	case r.State == Undone:
		return append([]string{r.Fault}, r.Undone...)
	default:
		return r.Undone
	}
}

// keeping returns the record of a node that is not acted on any more, for these faults for which someone has undone an
// action; nil for none.
func (r *Record) keeping(undone []string) *Record {
	if len(undone) == 0 {
		return nil
	}
	return &Record{UID: r.UID, State: Undone, Action: r.Action, Fault: undone[0], Undone: undone[1:]}
}

// DecodeRecord decodes the annotation. It fails if the text is not a Record, or has a state or an action that this
// operator does not write.
func DecodeRecord(annotation string) (*Record, error) {
	record := &Record{}
	if err := json.Unmarshal([]byte(annotation), record); err != nil {
		return nil, fmt.Errorf("decoding the record: %w", err)
	}
	switch record.State {
	case Claimed, Done, Undone:
	default:
		return nil, fmt.Errorf("unknown state %q", record.State)
	}
	switch record.Action {
	case v1.HealthActionTaint, v1.HealthActionCordon:
		return record, nil
	default:
		return nil, fmt.Errorf("unknown action %q", record.Action)
	}
}

// Encode returns the text of the annotation.
func (r *Record) Encode() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("encoding a record: %v", err))
	}
	return string(text)
}

// Cordons reports whether, by this record, the operator has cordoned the node with this UID.
func (r *Record) Cordons(node types.UID) bool {
	return r.UID == node && r.State == Done && r.Action == v1.HealthActionCordon
}

// takesPlace reports whether the node counts as acted on. A claim does: it may be used at any time.
func (r *Record) takesPlace() bool { return r != nil && r.State != Undone }
