package health

import (
	"fmt"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nvml"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/xid"
)

// Reasons of notes that NVML alone shows.
const (
	reasonLinkDegraded  = "PCIeLinkDegraded"
	reasonThrottled     = "GPUThrottled"
	reasonCountMismatch = "GPUCountMismatch"
	reasonDegrading     = "GPUMemoryDegrading"
)

// measured are the reasons that begin and end by measurements, whatever is reset.
var measured = []string{reasonLinkDegraded, reasonThrottled, reasonCountMismatch}

const (
	// confirmations is how many sessions in succession must show what a return code says of a GPU or of the driver.
	confirmations = 2
	// DefaultWindow is how long a link must have been narrow, and over which throttling is measured.
	DefaultWindow = 10 * time.Minute
	// MaxSessions is the longest time between two sessions: two of them must fit into the window. A session takes time
	// itself, so two that are 6 minutes apart still count as successive, see longestGap.
	MaxSessions = DefaultWindow / 2
	// A GPU is noted as throttled from the first of these shares of the window, and no more below the second one.
	throttledFrom, throttledBelow = 0.2, 0.05
)

// longestGap returns the longest time between two sessions that both count for the window.
func longestGap(window time.Duration) time.Duration { return window * 3 / 5 }

// gpuState is what the sessions have shown of one GPU.
type gpuState struct {
	// last is the last sample with the GPU; nil if there was none since the agent has started.
	last *nvml.GPU
	// code is the last decisive code, and codes how many sessions in succession had it.
	code  nvml.Code
	codes int
	// absent is how many sessions in succession did not know the GPU, although the driver is bound to it.
	absent int
	// at is the time of the last sample in which the GPU has answered.
	at time.Time
	// present is the time of the last one in which NVML has not called it lost either.
	present time.Time
	// narrow is how long the link has been narrower than it can be, without a break, and full how long it has not been.
	narrow, full time.Duration
	throttled    []throttledPart
	// nanos is the counter of the last sample.
	nanos *uint64
}

// throttledPart is the time between two samples, and how much of it the GPU was throttled.
type throttledPart struct{ all, throttled time.Duration }

// signalOfCode has the rule and the words for the codes that say what a GPU needs.
var signalOfCode = map[nvml.Code]struct {
	rule xid.Rule
	text string
}{
	nvml.GPULost: {
		xid.Rule{Class: gpuhealth.Reboot, Reason: gpuhealth.ReasonGPULost}, "the gpu is lost",
	},
	nvml.ResetRequired: {xid.Rule{Class: gpuhealth.Reset, Reason: "GPUResetRequired"}, "the gpu requires a reset"},
	nvml.CorruptedInfoROM: {
		xid.Rule{Class: gpuhealth.Hardware, Reason: "GPUInfoROMCorrupted"}, "the inforom is corrupted",
	},
	nvml.InsufficientPower: {
		xid.Rule{Class: gpuhealth.Hardware, Reason: "GPUPowerCableMissing"}, "the power is insufficient",
	},
}

// actions are those of NVML in the words of Xid 154.
var actions = map[nvml.Action]xid.Action{
	nvml.ActionNone: xid.ActionNone, nvml.ActionReset: xid.ActionReset, nvml.ActionReboot: xid.ActionReboot,
	nvml.ActionDrainPeers: xid.ActionDrainPeers, nvml.ActionDrainAndReset: xid.ActionDrainAndReset,
	nvml.ActionRecoverFabric: xid.ActionRecoverFabric,
}

// resume continues after a fault that NVML has shown to an earlier agent.
func (d *device) resume() {
	for number, action := range actions {
		if d.fault.NVML == actionSignal(number) {
			d.action = action
		}
	}
}

func actionSignal(action nvml.Action) string { return fmt.Sprintf("recovery action %d", action) }

// measure takes what a session has shown of the GPUs. It has begun at this time. gone reports whether the device has
// left the bus or does not answer there. It reports whether a session soon could confirm something.
func (s *state) measure(sample nvml.Sample, began time.Time, gone func(pci string) bool) (confirm bool) {
	if s.driver.take(sample, began) {
		confirm = true
	}
	if sample.Code != nvml.Success {
		return confirm
	}
	for _, gpu := range sample.GPUs {
		if d := s.ensureDevice(gpu.PCI, false); d != nil && d.measure(gpu, began, gone) {
			confirm = true
		}
	}
	return confirm
}

func (d *device) measure(gpu nvml.GPU, began time.Time, gone func(pci string) bool) (confirm bool) {
	d.nvml.last = &gpu
	if gpu.UUID != "" && gpuhealth.IsUUID(gpu.UUID) {
		d.uuid = gpu.UUID
	}
	if confirm = d.takeCode(gpu.Code, began, gone); d.nvml.code == nvml.GPULost {
		return confirm
	}
	if gpu.Code.IsAbsent() {
		return d.takeAbsence(began, gone)
	}
	if gpu.UUID == "" {
		// It has not answered, for a reason that says nothing of the GPU.
		return confirm
	}
	d.nvml.absent = 0
	d.dropNote(reasonCountMismatch)
	d.takeAction(gpu.Action, began)
	d.takeMemory(gpu, began)
	passed := time.Duration(0)
	if !d.nvml.at.IsZero() && began.Sub(d.nvml.at) <= longestGap(d.state.window) {
		passed = began.Sub(d.nvml.at)
	}
	d.nvml.at = began
	if gpu.Code != nvml.GPULost {
		d.nvml.present = began
	}
	d.takeLink(gpu.Link, passed, began)
	d.takeThrottle(gpu, passed, began)
	return confirm
}

// takeCode takes the code of the calls about the GPU. A lost GPU must be lost on the bus, too.
func (d *device) takeCode(code nvml.Code, began time.Time, gone func(pci string) bool) (confirm bool) {
	signal, known := signalOfCode[code]
	if !known || code == nvml.GPULost && !gone(d.pci) {
		d.nvml.code, d.nvml.codes = code, 0
		return false
	}
	if d.nvml.code != code {
		d.nvml.codes = 0
	}
	d.nvml.code = code
	d.nvml.codes++
	if d.nvml.codes < confirmations {
		return true
	}
	d.worsen(signal.rule, cause{nvml: signal.text}, began)
	return false
}

// takeAbsence takes that NVML does not know of the GPU. One that has left the bus, too, has been removed.
func (d *device) takeAbsence(began time.Time, gone func(pci string) bool) (confirm bool) {
	if gone(d.pci) {
		return false
	}
	d.nvml.absent++
	if d.nvml.absent < confirmations {
		return true
	}
	d.addNote(gpuhealth.Watch, reasonCountMismatch, 0, began)
	return false
}

// takeAction takes what the GPU needs to recover. That it needs nothing ends a fault only if it has needed something:
// otherwise the driver may know nothing of the fault.
func (d *device) takeAction(number *nvml.Action, began time.Time) {
	if number == nil {
		return
	}
	action, known := actions[*number]
	needed := d.action != "" && d.action != xid.ActionNone
	switch {
	case !known:
	case action != xid.ActionNone:
		d.announce(action, cause{nvml: actionSignal(*number)}, began)
	case needed && began.After(d.actionAt):
		d.announce(action, cause{}, began)
	}
}

// takeMemory takes the state of the memory.
func (d *device) takeMemory(gpu nvml.GPU, began time.Time) {
	if gpu.Remap != nil {
		switch note, noted := d.notes[xid.ReasonRemapPending]; {
		case gpu.Remap.Pending:
			d.addNote(gpuhealth.Watch, xid.ReasonRemapPending, 0, began)
		case noted && note.Since.Before(began):
			d.dropNote(xid.ReasonRemapPending)
		}
		if gpu.Remap.Failed {
			rule := xid.Rule{Class: gpuhealth.Reset, Reason: gpuhealth.ReasonRemapFailed}
			d.worsen(rule, cause{nvml: "a row could not be remapped"}, began)
		}
	}
	if gpu.SRAMExceeded == nil || !*gpu.SRAMExceeded {
		return
	}
	d.addNote(gpuhealth.Watch, reasonDegrading, 0, began)
	if d.fault != nil && d.fault.Reason == xid.ReasonUncorrectable && d.fault.Class == gpuhealth.Reset {
		worse := *d.fault
		worse.Class = gpuhealth.Hardware
		d.fault = &worse
	}
}

// takeLink notes a PCIe link that has been narrow for the whole window, until it has been full as long. Its speed does
// not count: it falls while the GPU is idle.
func (d *device) takeLink(link *nvml.Link, passed time.Duration, began time.Time) {
	if link == nil || link.MaxWidth == 0 {
		return
	}
	if link.Width < link.MaxWidth {
		d.nvml.narrow, d.nvml.full = d.nvml.narrow+passed, 0
	} else {
		d.nvml.narrow, d.nvml.full = 0, d.nvml.full+passed
	}
	if passed == 0 {
		d.nvml.narrow, d.nvml.full = 0, 0
	}
	switch {
	case d.nvml.narrow >= d.state.window:
		d.addNote(gpuhealth.Watch, reasonLinkDegraded, 0, began)
	case d.nvml.full >= d.state.window:
		d.dropNote(reasonLinkDegraded)
	}
}

// takeThrottle notes a GPU that heat or the power supply slows for a good part of the window, until they do so hardly
// ever.
func (d *device) takeThrottle(gpu nvml.GPU, passed time.Duration, began time.Time) {
	before := d.nvml.nanos
	d.nvml.nanos = gpu.ThrottledNanos
	throttled, known := throttledFor(before, gpu, passed)
	if !known {
		return
	}
	if passed == 0 {
		d.nvml.throttled = nil
		return
	}
	d.nvml.throttled = append(d.nvml.throttled, throttledPart{all: passed, throttled: throttled})
	all, _ := d.nvml.throttling()
	for all-d.nvml.throttled[0].all >= d.state.window {
		all -= d.nvml.throttled[0].all
		d.nvml.throttled = d.nvml.throttled[1:]
	}
	switch all, share := d.nvml.throttling(); {
	case all < d.state.window:
	case share > throttledFrom:
		d.addNote(gpuhealth.Watch, reasonThrottled, 0, began)
	case share < throttledBelow:
		d.dropNote(reasonThrottled)
	}
}

// throttledFor returns how long of the time that has passed the GPU was throttled: by its counter if it has one, which
// was at before, or by what it is now.
func throttledFor(before *uint64, gpu nvml.GPU, passed time.Duration) (throttled time.Duration, known bool) {
	if gpu.ThrottledNanos != nil && before != nil && *gpu.ThrottledNanos >= *before {
		return min(time.Duration(*gpu.ThrottledNanos-*before), passed), true
	}
	if gpu.Throttle == nil {
		return 0, gpu.ThrottledNanos != nil
	}
	if *gpu.Throttle&(nvml.ThrottleHeat|nvml.ThrottlePowerBrake) != 0 {
		return passed, true
	}
	return 0, true
}

// throttling returns how much time the samples cover, and the share of it in which the GPU was throttled.
func (g *gpuState) throttling() (all time.Duration, share float64) {
	var throttled time.Duration
	for _, part := range g.throttled {
		all, throttled = all+part.all, throttled+part.throttled
	}
	if all == 0 {
		return 0, 0
	}
	return all, float64(throttled) / float64(all)
}
