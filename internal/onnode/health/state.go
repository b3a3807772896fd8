package health

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/xid"
)

const (
	// maxDevices bounds the devices that are kept; a node has fewer.
	maxDevices = gpuhealth.MaxFaults
	// maxNumbers bounds the numbers of errors that are counted for one device. The others are counted together.
	maxNumbers = 64
	// maxProcesses bounds the processes that are remembered for one kind of error.
	maxProcesses = 8
	// accompanies is how long after an error the driver may announce what the GPU needs because of it.
	accompanies = 10 * time.Second
	// noteAgain is how long an error of programs is noted once, however often it is repeated.
	noteAgain = time.Hour
	// maxAge is how long an earlier fault counts.
	maxAge = 30 * 24 * time.Hour
)

// state is what follows from the records of one boot. It is not safe for concurrent use.
type state struct {
	boot string
	// settled is the number of the last record that the faults at the start followed from: that record and earlier ones
	// are only counted.
	settled uint64
	// sequence is the number of the last record.
	sequence uint64
	devices  map[string]*device
	// driver is what NVML shows of the driver.
	driver driverState
	// window is normally DefaultWindow.
	window time.Duration
	// past are faults that matter when they occur again.
	past []gpuhealth.Past
}

// device is one GPU, or one NVSwitch.
type device struct {
	state *state
	pci   string
	// uuid is empty until NVML has shown it.
	uuid string
	// fault is what makes it unhealthy, nil if nothing does, and ended the one that a reset has ended last.
	fault, ended *gpuhealth.Fault
	// action is what the driver has last announced that it needs, in the kernel log at actionAt or by NVML; empty if it
	// has announced nothing.
	action   xid.Action
	actionAt time.Time
	// notes are the other things to report, by their keys. They may be changed by addNote and dropNote only.
	notes map[string]gpuhealth.Note
	// torn is when an error occurred that matters only if no other one accompanies it; zero if there is none.
	torn time.Time
	// nvml is what the sessions have shown.
	nvml gpuState
	// last is its last error, with another Xid than 154.
	last   int
	lastAt time.Time
	// repeats are the recent occurrences of errors that may be repeated, by their number.
	repeats map[int][]occurrence
	// counts are the lines about each error, by its number as text.
	counts map[string]int
	// isSwitch: it is an NVSwitch.
	isSwitch bool
}

// occurrence is the beginning of a burst of equal errors.
type occurrence struct {
	at  time.Time
	pid int
}

// newState returns the state after what an agent of the same boot has reported; of another boot, nothing is left.
func newState(boot string, window time.Duration, reported gpuhealth.Report) *state {
	s := &state{boot: boot, window: window, devices: map[string]*device{}, past: slices.Clone(reported.Past)}
	if reported.Boot != boot {
		return s
	}
	s.settled, s.sequence = reported.Sequence, reported.Sequence
	for _, fault := range reported.Faults {
		if found := s.ensureDevice(fault.PCI, fault.SXid != 0); found != nil {
			found.fault = new(fault)
			found.resume()
		}
	}
	for _, note := range reported.Notes {
		if note.PCI == "" {
			s.driver.resume(note)
		} else if found := s.ensureDevice(note.PCI, false); found != nil {
			found.notes[noteKey(note)] = note
		}
	}
	return s
}

// noteKey distinguishes the notes of one device: one for each reason, and for each error of programs.
func noteKey(note gpuhealth.Note) string {
	if note.Class == gpuhealth.App {
		return fmt.Sprintf("Xid %d", note.Xid)
	}
	return note.Reason
}

// addNote adds the note, unless there is one already.
func (d *device) addNote(class gpuhealth.Class, reason string, number int, at time.Time) {
	note := gpuhealth.Note{PCI: d.pci, UUID: d.uuid, Class: class, Reason: reason, Xid: number, Since: at}
	before, known := d.notes[noteKey(note)]
	if !known || class == gpuhealth.App && at.Sub(before.Since) > noteAgain {
		d.notes[noteKey(note)] = note
	}
}

func (d *device) dropNote(reason string) { delete(d.notes, reason) }

// occurredBefore reports whether the GPU has had the fault in the last days, also in an earlier boot.
func (d *device) occurredBefore(reason string, at time.Time) bool {
	return slices.ContainsFunc(d.state.past, func(p gpuhealth.Past) bool {
		return p.Reason == reason && p.Is(d.pci, d.uuid) && at.Sub(p.At) <= maxAge && d.wasBackAfter(p)
	})
}

// wasBackAfter reports whether a lost GPU has been there since: otherwise it is lost for the same time still, although
// someone has said that it was reset. A GPU with another fault is there.
func (d *device) wasBackAfter(p gpuhealth.Past) bool {
	return p.Reason != gpuhealth.ReasonGPULost || p.Boot != d.state.boot || d.nvml.present.After(p.At)
}

// remember keeps the fault for occurredBefore, and forgets what is too old.
func (s *state) remember(fault gpuhealth.Fault, uuid string) {
	s.past = slices.DeleteFunc(s.past, func(p gpuhealth.Past) bool {
		return p.Reason == fault.Reason && p.Is(fault.PCI, uuid) || fault.Since.Sub(p.At) > maxAge
	})
	s.past = append(s.past, gpuhealth.Past{
		PCI: fault.PCI, UUID: uuid, Reason: fault.Reason, At: fault.Since, Boot: s.boot,
	})
}

// ensureDevice returns the device with the address; nil if there are too many.
func (s *state) ensureDevice(pci string, isSwitch bool) *device {
	found := s.devices[pci]
	if found == nil && len(s.devices) < maxDevices {
		found = &device{
			state: s, pci: pci, isSwitch: isSwitch, notes: map[string]gpuhealth.Note{}, repeats: map[int][]occurrence{},
			counts: map[string]int{},
		}
		s.devices[pci] = found
	}
	return found
}

// takeEvent takes what a record reports at this time.
func (s *state) takeEvent(sequence uint64, event xid.Event, at time.Time) {
	s.sequence = max(s.sequence, sequence)
	if _, known := s.devices[event.PCI]; !known && event.Reset {
		return
	}
	d := s.ensureDevice(event.PCI, event.SXid != 0)
	if d == nil {
		return
	}
	fault, ended, notes, past := d.fault, d.ended, d.notes, s.past
	if sequence <= s.settled {
		d.notes, s.past = maps.Clone(notes), slices.Clone(past)
	}
	d.settle(at)
	switch {
	case event.Reset:
		d.recover()
	case event.SXid != 0:
		d.count(event.SXid)
		if event.Fatal {
			d.worsen(xid.Rule{Class: gpuhealth.Reset, Reason: xid.ReasonSwitch}, cause{sxid: event.SXid}, at)
		}
	case event.Xid == xid.RecoveryAction:
		d.count(event.Xid)
		d.torn, d.actionAt = time.Time{}, at
		d.announce(event.Action, cause{xid: event.Xid}, at)
	default:
		d.count(event.Xid)
		d.takeError(event, at)
	}
	if sequence <= s.settled {
		// What was reported before has it in it.
		d.fault, d.ended, d.notes, s.past = fault, ended, notes, past
	}
}

// recover drops what the device needed to be reset for. What programs have done, and what NVML shows, is not part of
// that.
func (d *device) recover() {
	if d.fault != nil {
		d.ended = d.fault
	}
	d.fault, d.action, d.torn = nil, xid.ActionNone, time.Time{}
	maps.DeleteFunc(d.notes, func(_ string, note gpuhealth.Note) bool {
		return note.Class != gpuhealth.App && !slices.Contains(measured, note.Reason)
	})
}

// settle notes the error that no other one has accompanied. It returns when to call it again; zero if there is no need.
func (d *device) settle(now time.Time) time.Time {
	if d.torn.IsZero() {
		return time.Time{}
	}
	rule := xid.Lookup(xid.ChannelsTornDown)
	if due := d.torn.Add(rule.Alone); now.Before(due) {
		return due
	}
	d.addNote(rule.Class, rule.Reason, xid.ChannelsTornDown, d.torn)
	d.torn = time.Time{}
	return time.Time{}
}

// settle settles all devices, and returns when to call it again; zero if there is no need.
func (s *state) settle(now time.Time) time.Time {
	var next time.Time
	for _, d := range s.devices {
		if due := d.settle(now); !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next
}

// takeError takes an error of a GPU.
func (d *device) takeError(event xid.Event, at time.Time) {
	rule := xid.Lookup(event.Xid)
	if rule.Alone > 0 {
		// The first of several that nothing accompanies counts: otherwise frequent ones would never be noted.
		if d.torn.IsZero() && (d.last == 0 || at.Sub(d.lastAt) > rule.Alone) {
			d.torn = at
		}
		return
	}
	d.torn = time.Time{}
	if repeat := rule.Repeat; d.noteRepeat(event, at, repeat) {
		rule.Class, rule.Reason = repeat.Class, repeat.Reason
	}
	d.last, d.lastAt = event.Xid, at
	if event.Xid == xid.SmoothingEngaged {
		d.dropNote(xid.Lookup(xid.SmoothingDisengaged).Reason)
	}
	switch {
	case rule.Class.IsUnhealthy():
		d.worsen(d.needed(rule), cause{xid: event.Xid}, at)
	case rule.Reason != "":
		d.addNote(rule.Class, rule.Reason, event.Xid, at)
	}
}

// needed returns the rule with the class that the driver has announced for the GPU. It overrides the class of errors
// that a reset or a reboot ends, unless it is None, which is from before the error.
func (d *device) needed(rule xid.Rule) xid.Rule {
	announced, known := d.action.Rule()
	if known && announced.Class.IsUnhealthy() && isOverridden(rule.Class, rule.Reason) {
		rule.Class = announced.Class
	}
	return rule
}

// isOverridden reports whether the driver knows better than the table what a fault needs.
func isOverridden(class gpuhealth.Class, reason string) bool {
	return (class == gpuhealth.Reset || class == gpuhealth.Reboot) && reason != gpuhealth.ReasonGPULost
}

// announce takes what the driver says that the GPU needs.
func (d *device) announce(action xid.Action, from cause, at time.Time) {
	rule, known := action.Rule()
	if !known {
		return
	}
	d.action = action
	switch {
	case action == xid.ActionNone:
		d.recover()
	case !rule.Class.IsUnhealthy():
		d.addNote(rule.Class, rule.Reason, from.xid, at)
	case d.fault == nil:
		if d.last != 0 && at.Sub(d.lastAt) <= accompanies {
			from = cause{xid: d.last}
		}
		d.worsen(rule, from, at)
	case isOverridden(d.fault.Class, d.fault.Reason):
		changed := *d.fault
		changed.Class = rule.Class
		d.fault = &changed
	}
}

// cause is what has shown a fault, one of the three.
type cause struct {
	xid, sxid int
	nvml      string
}

// lasting are the faults that mean more when they occur again, see occurredBefore.
var lasting = []string{gpuhealth.ReasonGPULost, gpuhealth.ReasonRemapFailed}

// worsen makes the device unhealthy. The first of several faults stays, unless another one is worse, or says more than
// that the driver has announced something.
func (d *device) worsen(rule xid.Rule, from cause, at time.Time) {
	isLasting := slices.Contains(lasting, rule.Reason)
	if isLasting && (d.fault == nil || d.fault.Reason != rule.Reason) {
		rule.Class = d.lastingClass(rule, at)
	}
	next := gpuhealth.Fault{
		PCI: d.pci, UUID: d.uuid, Class: rule.Class, Reason: rule.Reason, Xid: from.xid, SXid: from.sxid, NVML: from.nvml,
		Since: at,
	}
	if before := d.fault; before != nil {
		isVague := before.Xid == xid.RecoveryAction && before.Class == next.Class
		if next.Class.Compare(before.Class) <= 0 && !isVague {
			return
		}
		next.UUID, next.Since = before.UUID, before.Since
	}
	d.fault = &next
	if isLasting {
		d.state.remember(next, d.uuid)
	}
}

// lastingClass returns the class of a lasting fault: it needs a person if it has occurred before. One that a reset has
// only seemed to end keeps its class.
func (d *device) lastingClass(rule xid.Rule, at time.Time) gpuhealth.Class {
	neededPerson := d.ended != nil && d.ended.Reason == rule.Reason && d.ended.Class == gpuhealth.Hardware
	if neededPerson || d.occurredBefore(rule.Reason, at) {
		return gpuhealth.Hardware
	}
	return rule.Class
}

// noteRepeat notes the error, and reports whether it has occurred often enough.
func (d *device) noteRepeat(event xid.Event, at time.Time, repeat xid.Repeat) bool {
	if repeat.Count == 0 || repeat.Processes && event.PID == 0 {
		return false
	}
	recent := slices.DeleteFunc(d.repeats[event.Xid], func(o occurrence) bool { return at.Sub(o.at) > repeat.Within })
	counts := func(o occurrence) bool {
		if repeat.Processes {
			return o.pid == event.PID
		}
		return at.Sub(o.at) < xid.Burst
	}
	if !slices.ContainsFunc(recent, counts) {
		recent = append(recent, occurrence{at: at, pid: event.PID})
	}
	recent = recent[max(len(recent)-maxProcesses, 0):]
	d.repeats[event.Xid] = recent
	return len(recent) >= repeat.Count
}

// otherNumbers is what the errors are counted as that are too many.
const otherNumbers = "other"

func (d *device) count(number int) {
	text := strconv.Itoa(number)
	if _, known := d.counts[text]; !known && len(d.counts) >= maxNumbers {
		text = otherNumbers
	}
	d.counts[text]++
}

// report returns the faults for the annotation, sorted by address.
func (s *state) report() gpuhealth.Report {
	report := gpuhealth.Report{
		Boot: s.boot, Sequence: s.sequence, Faults: []gpuhealth.Fault{}, Notes: s.driver.notes(), Past: slices.Clone(s.past),
	}
	for _, pci := range slices.Sorted(maps.Keys(s.devices)) {
		d := s.devices[pci]
		if d.fault != nil {
			report.Faults = append(report.Faults, *d.fault)
		}
		for _, key := range slices.Sorted(maps.Keys(d.notes)) {
			report.Notes = append(report.Notes, d.notes[key])
		}
	}
	return report
}
