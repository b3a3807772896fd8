package xid

import (
	"sync"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
)

// Rule is what the Xids of one kind mean.
type Rule struct {
	// Numbers of the Xids.
	Numbers []int
	// Meaning in a few words.
	Meaning string
	// Class of the error, and Reason in CamelCase; empty for errors that are only counted.
	Class  gpuhealth.Class
	Reason string
	// Repeat is what the error means when it is repeated on one GPU. The zero Repeat means the same.
	Repeat Repeat
	// Alone: the error counts only if no other one occurs on the GPU within this time before or after it; 0 for always.
	Alone time.Duration
	// Source of the class, see Sources.
	Source Source
}

// Repeat is another class for an error that is repeated.
type Repeat struct {
	// Count of occurrences on one GPU Within this time. Those less than Burst apart are one: the driver writes several
	// lines about one error.
	Count  int
	Within time.Duration
	// Processes: the occurrences must be of different processes.
	Processes bool
	Class     gpuhealth.Class
	Reason    string
}

// Burst is the time in which the same Xids on one GPU count as one.
const Burst = 3 * time.Minute

// Source is where a class comes from.
type Source string

// The sources of the table.
const (
	// Catalogue: the immediate action in NVIDIA's Xid catalogue.
	Catalogue Source = "catalogue"
	// Text: NVIDIA's descriptions and guides beside the catalogue's action.
	Text Source = "guides"
	// Choice: this project's choice where the catalogue has no action, or asks for a decision.
	Choice Source = "own"
)

const day = 24 * time.Hour

var (
	applications = Repeat{Count: 3, Within: day, Processes: true, Class: gpuhealth.Watch, Reason: "GPUApplicationErrors"}
	degrading    = Repeat{Count: 3, Within: day, Class: gpuhealth.Hardware, Reason: "GPUMemoryDegrading"}
)

// Table returns the rules for all known Xids, by class. Each Xid is in one of them.
func Table() []Rule {
	var all []Rule
	for _, part := range [][]Rule{ofApplications(), watched(), needResets(), needOthers()} {
		all = append(all, part...)
	}
	return all
}

func ofApplications() []Rule {
	app := func(meaning string, numbers ...int) Rule {
		return Rule{
			Numbers: numbers, Meaning: meaning, Class: gpuhealth.App, Reason: "GPUApplicationError",
			Repeat: applications, Source: Catalogue,
		}
	}
	return []Rule{
		app("channel idle timeout", 8),
		app("invalid or corrupted push buffer", 11, 25, 32),
		app("graphics engine exception, mostly access out of bounds", 13),
		app("MMU page fault", 31),
		app("copy engine exception", append(
			[]int{39, 40, 41, 70, 71, 72, 75, 76, 77, 85}, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135)...),
		app("channel reset after an error of the program", 43),
		app("exception of a video, security or graphics class engine", append(
			[]int{60, 68, 69, 80, 82, 83, 84, 86, 88, 89}, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 139)...),
		app("NVLink privilege error of a program", 137),
	}
}

func watched() []Rule {
	watch := func(meaning, reason string, source Source, numbers ...int) Rule {
		return Rule{Numbers: numbers, Meaning: meaning, Class: gpuhealth.Watch, Reason: reason, Source: source}
	}
	degrade := func(meaning string, source Source, numbers ...int) Rule {
		rule := watch(meaning, "GPUMemoryDegrading", source, numbers...)
		rule.Repeat = degrading
		return rule
	}
	torn := watch("channels removed, mostly after another error", "GPUChannelsTornDown", Catalogue, ChannelsTornDown)
	torn.Alone = time.Minute
	timeout := watch("context switch timeout", "", Choice, 109)
	timeout.Repeat = Repeat{Count: 2, Within: 10 * time.Minute, Class: gpuhealth.Reset, Reason: "GPUResetRequired"}
	return []Rule{
		torn,
		watch("driver firmware error, context-switch fault, illegal access of the driver", "", Catalogue, 37, 38, 44, 66, 67),
		watch("SMBPBI test message, C2C or fast path error, DLA", "", Catalogue, 106, 107, 108, 121, 141, 152, 153),
		watch("row remapping or page retirement recorded", ReasonRemapPending, Catalogue, 63),
		watch("contained memory error", "GPUMemoryErrorContained", Text, 94),
		degrade("high rate of corrected memory errors, wear of the InfoROM", Catalogue, 92, 93),
		degrade("resource retirement failed, channel retirement", Catalogue, 157, 160, 161),
		degrade("lifetime of power smoothing is used up", Choice, 165),
		timeout,
		watch("NVLink 5 error; the driver announces by Xid 154 what it needs", "NVLinkError", Choice,
			144, 145, 146, 147, 148, 150),
		watch("power smoothing engaged again, or has a low lifetime", "", Choice, 162, 164),
		watch("power smoothing disengaged, or the memory is reduced", "GPUReducedCapability", Choice, 163, 168),
	}
}

func needResets() []Rule {
	reset := func(meaning, reason string, source Source, numbers ...int) Rule {
		return Rule{Numbers: numbers, Meaning: meaning, Class: gpuhealth.Reset, Reason: reason, Source: source}
	}
	link := reset("NVLink error", "NVLinkError", Text, 74)
	link.Repeat = Repeat{Count: 3, Within: day, Class: gpuhealth.Hardware, Reason: "NVLinkError"}
	return []Rule{
		reset("uncorrectable memory error", ReasonUncorrectable, Catalogue, 48),
		reset("uncorrectable memory error: details of DRAM or SRAM", ReasonUncorrectable, Choice, 171, 172),
		reset("recording the row remapping failed", gpuhealth.ReasonRemapFailed, Catalogue, 64),
		reset("uncontained memory error", "GPUMemoryErrorUncontained", Catalogue, 95, 140),
		reset("the GPU stopped processing, a micro-controller halted", "GPUResetRequired", Catalogue, 46, 62),
		reset("security fault, initialization error, fatal timeout", "GPUResetRequired", Catalogue, 110, 143, 158),
		reset("timeout or error of the GPU's firmware (GSP)", "GPUFirmwareTimeout", Catalogue, 119, 120),
		link,
		reset("training of an NVLink failed, or the link is down", "NVLinkError", Catalogue, 136, 155),
		reset("NVLink 5: the link is down", "NVLinkError", Choice, 149),
		reset("resource retirement", "GPUResourceRetired", Catalogue, 156),
	}
}

func needOthers() []Rule {
	rule := func(class gpuhealth.Class, meaning, reason string, source Source, numbers ...int) Rule {
		return Rule{Numbers: numbers, Meaning: meaning, Class: class, Reason: reason, Source: source}
	}
	return []Rule{
		rule(gpuhealth.Reboot, "the GPU has fallen off the bus", gpuhealth.ReasonGPULost, Catalogue, 79),
		rule(gpuhealth.Hardware, "auxiliary power is not connected", "GPUPowerCableMissing", Catalogue, 54),
		rule(gpuhealth.Hardware, "video encoder error", "GPUHardwareError", Catalogue, 142),
		rule(gpuhealth.Hardware, "fatal PCIe timeout", "GPUHardwareError", Choice, 167),
		rule(gpuhealth.Infra, "vGPU start failed", "GPUPlatformError", Catalogue, 78),
		rule(gpuhealth.Infra, "key rotation, CHI error, NVLink security", "GPUPlatformError", Choice,
			151, 159, 166, 169, 170),
	}
}

// Special Xids.
const (
	// RecoveryAction announces what the GPU needs to recover, see Action.
	RecoveryAction = 154
	// SmoothingEngaged ends what SmoothingDisengaged reports.
	SmoothingEngaged, SmoothingDisengaged = 162, 163
	// ChannelsTornDown follows other errors, and is one of its own only if it is alone.
	ChannelsTornDown = 45
)

var byNumber = sync.OnceValue(func() map[int]Rule {
	rules := map[int]Rule{}
	for _, rule := range Table() {
		for _, number := range rule.Numbers {
			rules[number] = rule
		}
	}
	return rules
})

// Lookup returns the rule for an Xid. One that is not in the table is watched.
func Lookup(number int) Rule {
	if rule, known := byNumber()[number]; known {
		return rule
	}
	return Rule{Numbers: []int{number}, Meaning: "not in the table", Class: gpuhealth.Watch, Source: Choice}
}

// Action is what a GPU needs to recover, as the driver announces it by Xid 154, and NVML shows it.
type Action string

// The actions of Xid 154, in the driver's words.
const (
	ActionNone          Action = "None"
	ActionReset         Action = "GPU Reset Required"
	ActionReboot        Action = "Node Reboot Required"
	ActionDrainPeers    Action = "Drain P2P"
	ActionDrainAndReset Action = "Drain and Reset"
	// ActionRecoverFabric is known of NVML only.
	ActionRecoverFabric Action = "Recover Fabric"
)

// Rule returns the class and the reason of a GPU that needs the action, and whether the action is known.
func (a Action) Rule() (Rule, bool) {
	rule, known := map[Action]Rule{
		ActionNone:          {Class: gpuhealth.Watch},
		ActionReset:         {Class: gpuhealth.Reset, Reason: "GPUResetRequired"},
		ActionDrainAndReset: {Class: gpuhealth.Reset, Reason: "GPUResetRequired"},
		ActionDrainPeers:    {Class: gpuhealth.Reset, Reason: "GPUDrainPeersRequired"},
		ActionReboot:        {Class: gpuhealth.Reboot, Reason: "NodeRebootRequired"},
		ActionRecoverFabric: {Class: gpuhealth.Infra, Reason: "FabricDomainRecoveryRequired"},
	}[a]
	return rule, known
}

// Reasons that are used elsewhere, too.
const (
	// ReasonSwitch is the reason of a fatal error of an NVSwitch.
	ReasonSwitch = "NVSwitchFatalError"
	// ReasonRemapPending is the reason of a GPU whose memory has a row that the next reset replaces.
	ReasonRemapPending = "GPUMemoryRemapPending"
	// ReasonUncorrectable is the reason of a GPU whose memory has an error that could not be corrected.
	ReasonUncorrectable = "GPUUncorrectableECC"
)
