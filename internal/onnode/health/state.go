package health

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/gpuhealth"
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
}

// device is one GPU, or one NVSwitch.
type device struct {
	// fault is what makes it unhealthy, nil if nothing does.
	fault *gpuhealth.Fault
	// action is what the driver has last announced that it needs; empty if it has announced nothing.
	action xid.Action
	// watched are the reasons to watch it.
	watched map[string]bool
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
func newState(boot string, reported gpuhealth.Report) *state {
	s := &state{boot: boot, devices: map[string]*device{}}
	if reported.Boot != boot {
		return s
	}
	s.settled, s.sequence = reported.Sequence, reported.Sequence
	for _, fault := range reported.Faults {
		if found := s.device(fault.PCI, fault.SXid != 0); found != nil {
			found.fault = new(fault)
		}
	}
	return s
}

// device returns the device with the address; nil if there are too many.
func (s *state) device(pci string, isSwitch bool) *device {
	found := s.devices[pci]
	if found == nil && len(s.devices) < maxDevices {
		found = &device{
			isSwitch: isSwitch, watched: map[string]bool{}, repeats: map[int][]occurrence{}, counts: map[string]int{},
		}
		s.devices[pci] = found
	}
	return found
}

// observe takes what a record reports at this time.
func (s *state) observe(sequence uint64, event xid.Event, at time.Time) {
	s.sequence = max(s.sequence, sequence)
	if _, known := s.devices[event.PCI]; !known && event.Reset {
		return
	}
	d := s.device(event.PCI, event.SXid != 0)
	if d == nil {
		return
	}
	fault := d.fault
	switch {
	case event.Reset:
		d.recover()
	case event.SXid != 0:
		d.count(event.SXid)
		if event.Fatal {
			d.worsen(xid.Rule{Class: gpuhealth.Reset, Reason: xid.ReasonSwitch}, event, at)
		}
	case event.Xid == xid.RecoveryAction:
		d.count(event.Xid)
		d.announce(event, at)
	default:
		d.count(event.Xid)
		d.err(event, at)
	}
	if sequence <= s.settled {
		// The faults of the start have it in them.
		d.fault = fault
	}
}

// recover drops what the device needed to be reset for.
func (d *device) recover() {
	d.fault, d.action, d.watched = nil, xid.ActionNone, map[string]bool{}
}

// err takes an error of a GPU.
func (d *device) err(event xid.Event, at time.Time) {
	rule := xid.Lookup(event.Xid)
	if repeat := rule.Repeat; d.isRepeated(event, at, repeat) {
		rule.Class, rule.Reason = repeat.Class, repeat.Reason
	}
	d.last, d.lastAt = event.Xid, at
	if event.Xid == xid.SmoothingEngaged {
		delete(d.watched, xid.Lookup(xid.SmoothingDisengaged).Reason)
	}
	switch {
	case rule.Class.IsUnhealthy():
		d.worsen(d.needed(rule), event, at)
	case rule.Class == gpuhealth.Watch && rule.Reason != "":
		d.watched[rule.Reason] = true
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
func (d *device) announce(event xid.Event, at time.Time) {
	rule, known := event.Action.Rule()
	if !known {
		return
	}
	d.action = event.Action
	switch {
	case event.Action == xid.ActionNone:
		d.recover()
	case d.fault == nil:
		if d.last != 0 && at.Sub(d.lastAt) <= accompanies {
			event.Xid = d.last
		}
		d.worsen(rule, event, at)
	case isOverridden(d.fault.Class, d.fault.Reason):
		changed := *d.fault
		changed.Class = rule.Class
		d.fault = &changed
	}
}

// worsen makes the device unhealthy. The first of several faults stays, unless another one is worse, or says more than
// that the driver has announced something.
func (d *device) worsen(rule xid.Rule, event xid.Event, at time.Time) {
	next := gpuhealth.Fault{
		PCI: event.PCI, Class: rule.Class, Reason: rule.Reason, Xid: event.Xid, SXid: event.SXid, Since: at,
	}
	if before := d.fault; before != nil {
		isVague := before.Xid == xid.RecoveryAction && before.Class == next.Class
		if next.Class.Compare(before.Class) <= 0 && !isVague {
			return
		}
		next.UUID, next.Since = before.UUID, before.Since
	}
	d.fault = &next
}

// isRepeated records the error, and reports whether it has occurred often enough.
func (d *device) isRepeated(event xid.Event, at time.Time, repeat xid.Repeat) bool {
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
	report := gpuhealth.Report{Boot: s.boot, Sequence: s.sequence, Faults: []gpuhealth.Fault{}}
	for _, pci := range slices.Sorted(maps.Keys(s.devices)) {
		if fault := s.devices[pci].fault; fault != nil {
			report.Faults = append(report.Faults, *fault)
		}
	}
	return report
}
