package health

import (
	"slices"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nvml"
)

// Reasons of notes about the driver of a node. They say nothing of its GPUs.
const (
	reasonNotLoaded  = "DriverNotLoaded"
	reasonMismatch   = "DriverLibraryMismatch"
	reasonNoLibrary  = "NVMLNotFound"
	reasonAccessLost = "NVMLAccessLost"
	reasonHangs      = "NVMLHangs"
	reasonFails      = "NVMLFails"
)

// failures is how many sessions in succession must fail without a known reason before that is noted.
const failures = 3

// driverState is what the sessions have shown of the driver.
type driverState struct {
	// problem is the reason that the last session has shown, empty for none, and seen how many sessions in succession have
	// shown it.
	problem string
	seen    int
	// failed is how many sessions in succession have failed without a known reason.
	failed int
	// noted is the note that is reported; nil for none.
	noted *gpuhealth.Note
	// gpus is how many GPUs NVML has counted last, and version that of the driver.
	gpus    int
	version string
}

func (d *driverState) resume(note gpuhealth.Note) { d.noted = &note }

func (d *driverState) notes() []gpuhealth.Note {
	if d.noted == nil {
		return nil
	}
	return []gpuhealth.Note{*d.noted}
}

// take takes a complete session. It reports whether a session soon could confirm something.
func (d *driverState) take(sample nvml.Sample, at time.Time) (confirm bool) {
	if sample.Code == nvml.Success {
		d.gpus, d.version = sample.Count, sample.Driver
	}
	problem, known := problemOf(sample)
	if known {
		return d.takeProblem(problem, at)
	}
	if d.noted == nil {
		d.fail(at)
	}
	return false
}

// fail takes a session that has failed without a known reason. What is noted stays until that has lasted.
func (d *driverState) fail(at time.Time) {
	d.failed++
	if d.failed >= failures {
		d.note(reasonFails, at)
	}
}

// note notes a problem that is certain.
func (d *driverState) note(problem string, at time.Time) {
	for range confirmations {
		d.takeProblem(problem, at)
	}
}

// takeProblem takes the reason that a session has shown, empty for none. Both a reason and its end must be confirmed.
func (d *driverState) takeProblem(problem string, at time.Time) (confirm bool) {
	if problem != reasonFails {
		d.failed = 0
	}
	if d.problem != problem {
		d.problem, d.seen = problem, 0
	}
	d.seen++
	isNoted := d.noted != nil && d.noted.Reason == problem || d.noted == nil && problem == ""
	switch {
	case isNoted:
		return false
	case d.seen < confirmations:
		return true
	case problem == "":
		d.noted = nil
	default:
		d.noted = &gpuhealth.Note{Class: gpuhealth.Infra, Reason: problem, Since: at}
	}
	return false
}

// problemOf returns the reason why a session has shown nothing of the GPUs; empty if it has. The reason is not known if
// the code has no meaning beyond this session.
func problemOf(sample nvml.Sample) (reason string, known bool) {
	switch sample.Code {
	case nvml.Success:
		if len(sample.GPUs) > 0 && !slices.ContainsFunc(sample.GPUs, func(g nvml.GPU) bool { return !isRefused(g.Code) }) {
			return reasonAccessLost, true
		}
		return "", true
	case nvml.DriverNotLoaded:
		return reasonNotLoaded, true
	case nvml.LibraryMismatch:
		return reasonMismatch, true
	case nvml.LibraryNotFound:
		return reasonNoLibrary, true
	}
	return reasonAccessLost, isRefused(sample.Code)
}

// isRefused reports whether the code is that of a process which may not use a GPU, or has lost the access to it.
func isRefused(code nvml.Code) bool {
	return code == nvml.NoPermission || code == nvml.OperatingSystem || code == nvml.Unknown
}
