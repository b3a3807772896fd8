package export

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
	"github.com/clusterpolicy/gpu-operator/internal/times"
)

// validation is the content of a marker that can be trusted.
type validation struct {
	// at is when the marker was written.
	at time.Time
	// started is when the validation began; zero if the marker does not have it.
	started time.Time
	// renewed is set if the part was validated before.
	renewed bool
}

// read returns the validation of a marker; nil if there is no marker that can be trusted.
func read(dir marker.Dir, m labels.Marker) *validation {
	assignments, written, err := dir.ReadAt(m)
	if err != nil {
		return nil
	}
	found := validation{at: written}
	found.started, found.renewed = validate.Began(assignments)
	return &found
}

// stages tracks which stages were reached, and when a reached one was found lost.
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
func (s *stages) durations(validations map[labels.Marker]*validation, now time.Time) map[labels.Marker]time.Duration {
	s.track(validations, now)
	took := map[labels.Marker]time.Duration{}
	var before *validation
	for _, stage := range s.order {
		found := validations[stage]
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

// track records which stages are reached now, and which are no longer.
func (s *stages) track(validations map[labels.Marker]*validation, now time.Time) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, stage := range s.order {
		switch {
		case validations[stage] != nil:
			s.reached[stage] = true
			delete(s.lost, stage)
		case s.reached[stage]:
			s.reached[stage] = false
			s.lost[stage] = now
		}
	}
}

// since returns when a stage that is not reached began.
func (s *stages) since(stage labels.Marker, before *validation) time.Time {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	began := s.begun
	if before != nil {
		began = before.at
	}
	return times.Later(began, s.lost[stage])
}

// after returns how long the stage of this validation took, after that of the previous stage; nil for the first
// stage. It returns false if the times do not show it.
func (p *validation) after(before *validation) (time.Duration, bool) {
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

// StageNames returns the names of all stages, in their order.
func StageNames() []string {
	var names []string
	for _, stage := range DefaultStages {
		names = append(names, string(stage))
	}
	return names
}

// StagesNamed returns the stages with these names, in their order. It fails on the name of no stage.
func StagesNamed(names []string) ([]labels.Marker, error) {
	for _, name := range names {
		if !slices.Contains(StageNames(), name) {
			return nil, fmt.Errorf("unknown stage %q", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(DefaultStages), func(stage labels.Marker) bool {
		return !slices.Contains(names, string(stage))
	}), nil
}
