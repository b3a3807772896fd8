package export

import (
	"sync"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
	"github.com/clusterpolicy/gpu-operator/internal/times"
)

// proof is what a marker that can be trusted tells.
type proof struct {
	// at is when the marker was written.
	at time.Time
	// started is when its prover was started; zero where the marker does not tell.
	started time.Time
	// renewed tells that the part was proved before.
	renewed bool
}

// read returns the proof of a marker; nil where there is none that can be trusted.
func read(dir marker.Dir, m labels.Marker) *proof {
	assignments, written, err := dir.ReadAt(m)
	if err != nil {
		return nil
	}
	found := proof{at: written}
	found.started, found.renewed = validate.Began(assignments)
	return &found
}

// stages remembers which stages were reached, and when one was found lost.
type stages struct {
	order []labels.Marker
	// begun is when this program was started.
	begun time.Time

	mutex   sync.Mutex
	reached map[labels.Marker]bool
	lost    map[labels.Marker]time.Time
}

func newStages(order []labels.Marker, begun time.Time) *stages {
	return &stages{order: order, begun: begun, reached: map[labels.Marker]bool{}, lost: map[labels.Marker]time.Time{}}
}

// durations returns how long each stage took or has taken so far; see the package's documentation.
func (s *stages) durations(proofs map[labels.Marker]*proof, now time.Time) map[labels.Marker]time.Duration {
	s.remember(proofs, now)
	took := map[labels.Marker]time.Duration{}
	var before *proof
	for _, stage := range s.order {
		found := proofs[stage]
		if found == nil {
			took[stage] = max(0, now.Sub(s.since(stage, before)))
			break
		}
		if duration, known := found.after(before); known {
			took[stage] = duration
		}
		before = found
	}
	return took
}

// remember notes which stages are reached now, and which are no more.
func (s *stages) remember(proofs map[labels.Marker]*proof, now time.Time) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, stage := range s.order {
		switch {
		case proofs[stage] != nil:
			s.reached[stage] = true
			delete(s.lost, stage)
		case s.reached[stage]:
			s.reached[stage] = false
			s.lost[stage] = now
		}
	}
}

// since is when a stage began that is not reached.
func (s *stages) since(stage labels.Marker, before *proof) time.Time {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	began := s.begun
	if before != nil {
		began = before.at
	}
	return times.Later(began, s.lost[stage])
}

// after returns how long the stage of this proof took, after the proof of the stage before; nil for
// the first stage. It is not known where the times do not tell.
func (p *proof) after(before *proof) (time.Duration, bool) {
	began := p.started
	if before != nil && p.renewed {
		began = times.Later(before.at, p.started)
	} else if before != nil {
		began = before.at
	}
	if began.IsZero() || p.at.Before(began) {
		return 0, false
	}
	return p.at.Sub(began), true
}
