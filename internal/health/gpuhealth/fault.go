package gpuhealth

import (
	"cmp"
	"fmt"
	"time"
)

// Class is what a fault needs, and the only thing of it that decides.
type Class string

// The classes. Only a fault that needs a reset, a reboot or a person makes a GPU unhealthy.
const (
	// App: a program has made a mistake; the GPU is healthy.
	App Class = "App"
	// Watch: the GPU works; the event is counted.
	Watch Class = "Watch"
	// Reset: the GPU must be reset before it is used again.
	Reset Class = "Reset"
	// Reboot: the node must be rebooted.
	Reboot Class = "Reboot"
	// Hardware: a person must examine or replace hardware.
	Hardware Class = "Hardware"
	// Infra: the driver, the fabric or the platform has failed, and no GPU is known to be faulty.
	Infra Class = "Infra"
)

// needs is what the classes of an unhealthy GPU need, in words.
var needs = map[Class]string{
	Reset: "needs a reset", Reboot: "needs a reboot of the node", Hardware: "needs a person",
}

// severity orders the classes of an unhealthy GPU.
var severity = map[Class]int{Reset: 1, Reboot: 2, Hardware: 3}

// IsUnhealthy reports whether a fault of this class makes its GPU unhealthy.
func (c Class) IsUnhealthy() bool { return severity[c] > 0 }

// Compare returns a negative number if other is worse than c, 0 if none is worse, and a positive number otherwise. The
// classes that leave a GPU healthy are equal.
func (c Class) Compare(other Class) int { return cmp.Compare(severity[c], severity[other]) }

// Reasons with a meaning of their own. The others are only shown.
const (
	// ReasonGPULost: the GPU has fallen off the bus, so that no pod can use it, whatever the kubelet counts.
	ReasonGPULost = "GPULost"
	// ReasonRemapFailed: a row of the memory could not be replaced. A GPU with this fault after a reset must be replaced.
	ReasonRemapFailed = "GPUMemoryRemapFailed"
)

// Fault is what makes one GPU, or one NVSwitch, unhealthy.
type Fault struct {
	// PCI is the address of the device, such as 0000:1b:00.0.
	PCI string `json:"pci"`
	// UUID of the GPU; empty if it is not known.
	UUID string `json:"uuid,omitempty"`
	// Class is Reset, Reboot or Hardware.
	Class Class `json:"class"`
	// Reason is a word in CamelCase.
	Reason string `json:"reason"`
	// Xid is the number of the error; 0 for that of an NVSwitch.
	Xid int `json:"xid,omitempty"`
	// SXid is the number of an NVSwitch's error; 0 for that of a GPU.
	SXid int `json:"sxid,omitempty"`
	// NVML is what the driver's library has shown, if no error in the kernel log is the cause: recovery action 2.
	NVML string `json:"nvml,omitempty"`
	// Since is when the device became unhealthy, to the second.
	Since time.Time `json:"since"`
}

// IsLost reports whether the fault is that of a GPU that no pod can use.
func (f Fault) IsLost() bool { return f.Reason == ReasonGPULost }

// Text describes the fault: GPU 0000:1b:00.0 lost since 2026-11-25T12:03:00Z, Xid 79.
func (f Fault) Text() string {
	what := needs[f.Class]
	if f.IsLost() {
		what = "lost"
	}
	return fmt.Sprintf("%s %s since %s, %s", f.device(), what, f.Since.UTC().Format(time.RFC3339), f.Cause())
}

// Cause names the error: Xid 79, SXid 12028, or NVML: recovery action 2.
func (f Fault) Cause() string {
	switch {
	case f.SXid != 0:
		return fmt.Sprintf("SXid %d", f.SXid)
	case f.NVML != "":
		return "NVML: " + f.NVML
	}
	return fmt.Sprintf("Xid %d", f.Xid)
}

func (f Fault) device() string {
	if f.SXid != 0 {
		return "NVSwitch " + f.PCI
	}
	return gpuName(f.PCI, f.UUID)
}

func gpuName(pci, uuid string) string {
	if uuid != "" {
		return fmt.Sprintf("%s (%s)", uuid, pci)
	}
	return "GPU " + pci
}
