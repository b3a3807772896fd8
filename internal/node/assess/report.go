package assess

import (
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// Dwell is how long a worse assessment must last before it is reported.
type Dwell struct {
	// Replace applies to pods that are not ready and have not failed, as while they are replaced.
	Replace time.Duration
	// Lag applies to a node of which no GPU is allocatable any more: the pod of the device plugin that is being replaced
	// may be seen later than that, as nodes and pods are watched apart.
	Lag time.Duration
	// Loss applies to a node that has lost GPUs: the kubelet reports what a device plugin advertises one resource after
	// another, and GPU Feature Discovery later.
	Loss time.Duration
	// Flap applies to a node that has recovered less than Window ago, whatever the cause.
	Flap, Window time.Duration
}

// DefaultDwell returns the dwell times of the operator.
func DefaultDwell() Dwell {
	return Dwell{
		Replace: 4 * time.Second, Lag: 500 * time.Millisecond, Loss: 15 * time.Second,
		Flap: 10 * time.Second, Window: time.Minute,
	}
}

// Report is the assessment that the condition of the node shows: the latest one, or a previous one until a worse
// assessment has lasted for the dwell time. The policy's status shows fleet.Entry.StatusAssessment.
type Report struct {
	Assessment
	// worseSince is since when assessments have been worse than the reported one; zero if the latest is not.
	worseSince time.Time
	// recoveredAt is when the node last became ready again.
	recoveredAt time.Time
	// wasReady: the node has been ready at some time. latestReady: it is ready in the latest assessment.
	wasReady, latestReady bool
	// lags: since worseSince no GPU has been allocatable, and nothing else was wrong.
	lags bool
}

// Next returns the report after the latest assessment, and after how long it must be computed again; 0 for never. A
// failure is reported immediately, and almost so a loss of all allocatable GPUs while the device plugin works. A change
// of the MIG layout is reported immediately, too. A pod that is not ready and has not failed, and any second outage
// soon after a recovery, is reported after the dwell time.
func (r Report) Next(latest Assessment, dwell Dwell) (Report, time.Duration) {
	now := latest.At
	next := Report{
		Assessment: latest, recoveredAt: r.recoveredAt, wasReady: r.wasReady || latest.Ready(), latestReady: latest.Ready(),
	}
	if !r.isWorse(&latest) {
		if r.wasReady && !r.Ready() && !r.Excluded && latest.Ready() {
			next.recoveredAt = now
		}
		return next, 0
	}
	since := r.worseSince
	if since.IsZero() {
		since = now
	}
	if left := r.dwellTime(&latest, since, dwell) - now.Sub(since); left > 0 {
		previous := r
		previous.worseSince, previous.latestReady, previous.lags = since, latest.Ready(), r.losesGPUs(&latest)
		return previous, left
	}
	return next, 0
}

// isWorse reports whether the node, or an operand on it, was ready and is no longer. A newly excluded node is not
// worse: a user has decided so.
func (r *Report) isWorse(latest *Assessment) bool {
	if r.At.IsZero() || !r.Ready() || latest.Excluded {
		return false
	}
	if !latest.Ready() {
		return true
	}
	for name, before := range r.Operands {
		after, expected := latest.Operands[name]
		if expected && before.State == readiness.Ready && after.State != readiness.Ready {
			return true
		}
	}
	return false
}

// dwellTime returns how long assessments must be worse, as they have been since the given time, before they are
// reported.
func (r *Report) dwellTime(latest *Assessment, since time.Time, dwell Dwell) time.Duration {
	switch {
	case latest.Reason == v1.ReasonMIGConfigPending:
		// A user has requested it, or the operator.
		return 0
	case !latest.Ready() && !r.recoveredAt.IsZero() && since.Sub(r.recoveredAt) < dwell.Window:
		return dwell.Flap
	case latest.Reason == v1.ReasonGPUsUnhealthy || latest.Reason == v1.ReasonGPUsMissing:
		return dwell.Loss
	case latest.State == readiness.Failed || r.hasNewFailure(latest):
		return 0
	case r.losesGPUs(latest):
		return dwell.Lag
	}
	return dwell.Replace
}

// losesGPUs reports whether no GPU is allocatable any more, and nothing else has been wrong before.
func (r *Report) losesGPUs(latest *Assessment) bool {
	return latest.Reason == v1.ReasonNotAllocatable && (r.latestReady || r.lags)
}

// hasNewFailure reports whether an operand has failed that had not failed in the report.
func (r *Report) hasNewFailure(latest *Assessment) bool {
	for name, after := range latest.Operands {
		if after.State == readiness.Failed && r.Operands[name].State != readiness.Failed {
			return true
		}
	}
	return false
}
