package upgrade

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"
)

// maxRound is the last round of a record that is read. No node gets there, and the rounds that follow can be counted.
const maxRound = 1 << 62

// reasonText matches the reasons of package api/v1. The status of the policy admits no longer ones.
var reasonText = regexp.MustCompile(`^[A-Za-z]{0,128}$`)

// DecodeRecord decodes the annotation labels.UpgradeRecord, which any client can write. It fails if the text is not a
// Record, or has a state, a round or a reason that this operator does not write.
func DecodeRecord(annotation string) (*Record, error) {
	record := &Record{}
	if err := json.Unmarshal([]byte(annotation), record); err != nil {
		return nil, fmt.Errorf("decoding the record: %w", err)
	}
	switch record.State {
	case StateRequired, StateWaitForJobs, StatePodDeletion, StateDrain, StatePodRestart, StateValidation, StateDone,
		StateFailed:
	default:
		return nil, fmt.Errorf("unknown state %q", record.State)
	}
	if record.Round < 0 || record.Round > maxRound {
		return nil, fmt.Errorf("impossible round %d", record.Round)
	}
	if !reasonText.MatchString(record.Reason) {
		return nil, fmt.Errorf("impossible reason %q", record.Reason)
	}
	return record, nil
}

// clearFailure forgets the failures of earlier rounds, since the next attempt differs from them.
func (r *Record) clearFailure() {
	r.Reason, r.Message, r.RetryAt, r.Failures = "", "", time.Time{}, 0
}

// Encode returns the text of the annotation.
func (r *Record) Encode() string { return encode(r) }

// DecodeDrain decodes the annotation labels.MIGDrain. It fails if the text is not a Drain. A state that this operator
// does not write, such as one of a later release, is no error: whose cordon it is can be read.
func DecodeDrain(annotation string) (*Drain, error) {
	drain := &Drain{}
	if err := json.Unmarshal([]byte(annotation), drain); err != nil {
		return nil, fmt.Errorf("decoding the record of the drain: %w", err)
	}
	return drain, nil
}

// Encode returns the text of the annotation.
func (d *Drain) Encode() string { return encode(d) }

// DecodeSlots decodes the data of the ConfigMap labels.UpgradeSlots. It also returns the keys whose value cannot be
// read; they are not granted.
func DecodeSlots(data map[string]string) (Slots, []string) {
	slots := Slots{}
	var unreadable []string
	for _, node := range sortedKeys(data) {
		var slot Slot
		if err := json.Unmarshal([]byte(data[node]), &slot); err != nil || slot.UID == "" {
			unreadable = append(unreadable, node)
			continue
		}
		slots[node] = slot
	}
	return slots, unreadable
}

// Encode returns the data of the ConfigMap.
func (s Slots) Encode() map[string]string {
	data := make(map[string]string, len(s))
	for node, slot := range s {
		data[node] = encode(slot)
	}
	return data
}

// encode returns the JSON of a value that always has one.
func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", value, err))
	}
	return string(text)
}
