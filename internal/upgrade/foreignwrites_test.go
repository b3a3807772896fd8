package upgrade

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"
)

// foreignWrite is a write of another client to what the engine keeps of one node: its labels, its annotations, and the
// ConfigMap with the slots.
type foreignWrite struct {
	what  string
	write func(s *state, m *machine)
}

// farFuture is a time that no clock shows.
var farFuture = time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)

// foreignWrites are all values that the search writes.
func foreignWrites() []foreignWrite {
	all := []foreignWrite{
		{"remove record and label, uncordon", func(_ *state, m *machine) {
			m.State, m.Unschedulable = StateNone, false
			m.annotate("", false)
		}},
		{"remove record and label", func(_ *state, m *machine) {
			m.State = StateNone
			m.annotate("", false)
		}},
		{"cordon", func(_ *state, m *machine) { m.Unschedulable = true }},
		{"uncordon", func(_ *state, m *machine) { m.Unschedulable = false }},
		{"annotate requested", func(_ *state, m *machine) { m.Requested = true }},
		{"annotate initially cordoned", func(_ *state, m *machine) { m.InitiallyCordoned = true }},
		{"remove initially cordoned", func(_ *state, m *machine) { m.InitiallyCordoned = false }},
		{"label skip", func(_ *state, m *machine) { m.Skip = true }},
		{"no driver on the node any more", func(_ *state, m *machine) { m.Installs = false }},
		{"delete the driver pod for good", func(_ *state, m *machine) { m.Driver, m.Target = nil, "" }},
	}
	all = append(all, labelWrites()...)
	all = append(all, recordWrites()...)
	all = append(all, slotWrites()...)
	return append(all, layoutWrites()...)
}

func labelWrites() []foreignWrite {
	var all []foreignWrite
	for _, label := range []State{
		StateNone, StateRequired, StateCordon, StateWaitForJobs, StatePodDeletion, StateDrain, StateNodeMaintenance,
		StatePostMaintenance, StatePodRestart, StateValidation, StateUncordon, StateDone, StateFailed, "upgrade-tomorrow",
	} {
		all = append(all, foreignWrite{"label " + string(label), func(_ *state, m *machine) { m.State = label }})
	}
	return all
}

// annotate writes the annotation with the record, or removes it.
func (m *machine) annotate(text string, present bool) {
	m.Record, m.Unreadable = nil, ""
	if !present {
		return
	}
	record, err := DecodeRecord(text)
	if m.Record = record; err != nil {
		m.Unreadable = err.Error()
	}
}

// recordWrites write whole records, and each field of the record that the node has.
func recordWrites() []foreignWrite {
	var all []foreignWrite
	for _, text := range []string{"", "{", "{}", "[]", `{"uid":"other","state":"pod-restart-required"}`} {
		all = append(all, foreignWrite{"record " + text, func(_ *state, m *machine) { m.annotate(text, true) }})
	}
	all = append(all, foreignWrite{"remove the record", func(_ *state, m *machine) { m.annotate("", false) }})
	for field, values := range map[string][]any{
		"uid": {"other"}, "round": {-1, 0, 1, 7, 1_000_000_000, int64(math.MaxInt64), "x"},
		"state": {
			StateRequired, StateWaitForJobs, StatePodDeletion, StateDrain, StatePodRestart, StateValidation, StateDone,
			StateFailed, StateNodeMaintenance, "upgrade-tomorrow", "",
		},
		"since": {farFuture, time.Time{}, "x"}, "started": {farFuture, time.Time{}}, "retryAt": {farFuture, time.Time{}},
		"target": {"other", ""}, "driver": {"other", ""}, "driverPod": {"other", ""},
		"pulled": {"other", "b", ""}, "moves": {true, false},
		"requested": {true, false}, "cordoned": {true, false}, "restarted": {true, false}, "bootID": {"other"},
		"reason": {"Other", strings.Repeat("X", 200)}, "message": {strings.Repeat("x", 10_000)},
		"failures": {-1, math.MaxInt},
	} {
		for _, value := range values {
			all = append(all, foreignWrite{fmt.Sprintf("record %s=%.30v", field, value), func(_ *state, m *machine) {
				m.annotate(edited(m.Record, field, value), true)
			}})
		}
	}
	return all
}

// edited is the record with another value of a field; without a record it is one with this field alone.
func edited(record *Record, field string, value any) string {
	fields := map[string]any{}
	if record != nil {
		if err := json.Unmarshal([]byte(record.Encode()), &fields); err != nil {
			panic(err)
		}
	}
	fields[field] = value
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// slotWrites write the entry of the node in the ConfigMap.
func slotWrites() []foreignWrite {
	all := []foreignWrite{
		{"delete the ConfigMap", func(s *state, _ *machine) { s.slots = Slots{} }},
		{"remove the slot", func(s *state, m *machine) { s.put(m.Name, nil) }},
		{"slot of another UID", func(s *state, m *machine) { s.put(m.Name, &Slot{UID: "other", Round: 1}) }},
		{"slot of a node that does not exist", func(s *state, _ *machine) { s.put("gone", &Slot{UID: "gone", Round: 1}) }},
	}
	for _, round := range []int64{-1, 0, 1, 2, 3, 1_000_000, 1_000_000_000, math.MaxInt64} {
		all = append(all, foreignWrite{fmt.Sprint("slot of round ", round), func(s *state, m *machine) {
			s.put(m.Name, &Slot{UID: m.UID, Round: round})
		}})
	}
	for _, layout := range []string{"x", "y", "other"} {
		for _, evict := range []bool{true, false} {
			for _, since := range []time.Time{{}, epoch, farFuture} {
				what := fmt.Sprint("slot of layout ", layout, evict, since.Year())
				all = append(all, foreignWrite{what, func(s *state, m *machine) {
					s.put(m.Name, &Slot{UID: m.UID, Layout: layout, Since: since, Evict: evict})
				}})
			}
		}
	}
	return all
}

func (s *state) put(node string, slot *Slot) {
	s.slots = maps.Clone(s.slots)
	if slot == nil {
		delete(s.slots, node)
		return
	}
	s.slots[node] = *slot
}

// layoutWrites write the label of the MIG layout and the record of a drain.
func layoutWrites() []foreignWrite {
	var all []foreignWrite
	for _, layout := range []string{"", "y", "z"} {
		all = append(all, foreignWrite{"MIG layout " + layout, func(_ *state, m *machine) { m.MIG.Requested = layout }})
	}
	for _, text := range []string{"", "{", "{}", `{"uid":"other","state":"changing"}`} {
		all = append(all, foreignWrite{"drain " + text, func(_ *state, m *machine) { m.annotateDrain(text, true) }})
	}
	all = append(all, foreignWrite{"remove the drain", func(_ *state, m *machine) { m.annotateDrain("", false) }})
	for field, values := range map[string][]any{
		"uid":   {"other"},
		"state": {DrainJobs, DrainUsers, DrainAll, DrainChanging, DrainFailed, "later"}, "layout": {"", "y", "other"},
		"granted": {farFuture, time.Time{}}, "since": {farFuture, time.Time{}}, "retryAt": {farFuture, time.Time{}},
		"cordoned": {true, false}, "message": {"x"}, "failures": {-1, math.MaxInt},
	} {
		for _, value := range values {
			all = append(all, foreignWrite{fmt.Sprintf("drain %s=%v", field, value), func(_ *state, m *machine) {
				drain := Drain{UID: m.UID, State: DrainUsers, Layout: "y"}
				if m.MIG.Drain != nil {
					drain = *m.MIG.Drain
				}
				m.annotateDrain(editedDrain(&drain, field, value), true)
			}})
		}
	}
	return all
}

func editedDrain(drain *Drain, field string, value any) string {
	fields := map[string]any{}
	if err := json.Unmarshal([]byte(drain.Encode()), &fields); err != nil {
		panic(err)
	}
	fields[field] = value
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// annotateDrain writes the annotation with the record of a drain, or removes it.
func (m *machine) annotateDrain(text string, present bool) {
	m.MIG.Drain, m.MIG.Unreadable, m.MIG.Recorded = nil, false, present
	if present {
		drain, err := DecodeDrain(text)
		m.MIG.Drain, m.MIG.Unreadable = drain, err != nil
	}
}

// apply makes the write. What the world remembers of the node to notice mistakes does not hold any more.
func (f *foreignWrite) apply(s *state, i int) {
	m := &s.machines[i]
	f.write(s, m)
	m.version++
	m.foreign, m.replaced, m.started, s.lost = false, false, math.MinInt64, true
}
