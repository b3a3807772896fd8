package assess

import (
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/readiness"
)

// Dwell are the times for which a change for the worse must last before it is reported.
type Dwell struct {
	// Replace is that of a pod that is not ready and has not failed, as while it is replaced.
	Replace time.Duration
	// Flap is that of a node that has become ready again less than Window ago, whatever the cause.
	Flap, Window time.Duration
}

// DefaultDwell returns the times that the operator works with.
func DefaultDwell() Dwell {
	return Dwell{Replace: 4 * time.Second, Flap: 10 * time.Second, Window: time.Minute}
}

// Report is what is reported of a node, by its condition and by the policy's status alike: the latest assessment, or
// the one before as long as a change for the worse has to last.
type Report struct {
	Assessment
	// worseSince is since when the latest assessment has been worse than the reported one; zero if it is not.
	worseSince time.Time
	// recoveredAt is when the node last became ready that had been ready before.
	recoveredAt time.Time
	// wasReady: the node has been ready before, and latestReady: so it was by the assessment before the latest.
	wasReady, latestReady bool
}

// Next returns the report that follows when the node is assessed again, and after how long it may become another one by
// itself; 0 is never. A failure is reported at once, and so is that allocatable falls to nothing on a node whose device
// plugin works; a pod that is merely being replaced is reported once that has lasted, and so is whatever takes the node
// down twice within a minute.
func (r Report) Next(latest Assessment, dwell Dwell) (Report, time.Duration) {
	now := latest.At
	next := Report{Assessment: latest, recoveredAt: r.recoveredAt, wasReady: r.wasReady || latest.Ready(), latestReady: latest.Ready()}
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
		held := r
		held.worseSince, held.latestReady = since, latest.Ready()
		return held, left
	}
	return next, 0
}

// isWorse reports whether the node, or an operand on it, was ready and is no longer. A node that is excluded from now
// on is not worse: that is a decision of a person.
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

// dwellTime is for how long the report stays as it is before this assessment, which is worse since then.
func (r *Report) dwellTime(latest *Assessment, since time.Time, dwell Dwell) time.Duration {
	switch {
	case !latest.Ready() && !r.recoveredAt.IsZero() && since.Sub(r.recoveredAt) < dwell.Window:
		return dwell.Flap
	case latest.State == readiness.Failed || r.hasNewFailure(latest):
		return 0
	case latest.Stage == v1.StageAllocatable && r.latestReady:
		return 0
	}
	return dwell.Replace
}

// hasNewFailure reports whether an operand has failed that had not.
func (r *Report) hasNewFailure(latest *Assessment) bool {
	for name, after := range latest.Operands {
		if after.State == readiness.Failed && r.Operands[name].State != readiness.Failed {
			return true
		}
	}
	return false
}
