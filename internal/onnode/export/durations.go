package export

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/times"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
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

// durations tracks which markers were reached, and when a reached one was found lost.
type durations struct {
	order []labels.Marker
	// begun is when this program was started.
	begun time.Time

	mutex sync.Mutex
	valid map[labels.Marker]bool
	lost  map[labels.Marker]time.Time
}

func newDurations(order []labels.Marker, begun time.Time) *durations {
	return &durations{order: order, begun: begun, valid: map[labels.Marker]bool{}, lost: map[labels.Marker]time.Time{}}
}

// of returns how long the validation behind each marker took or has taken so far; see the package's documentation. What
// track was called with last are the same validations.
func (d *durations) of(validations map[labels.Marker]*validation, now time.Time) map[labels.Marker]time.Duration {
	took := map[labels.Marker]time.Duration{}
	var before *validation
	for _, m := range d.order {
		found := validations[m]
		if found == nil {
			took[m] = max(0, now.Sub(d.since(m, before)))
			break
		}
		if duration, known := found.after(before); known {
			took[m] = duration
		}
		before = found
	}
	return took
}

// track records which markers are valid now, and which are no longer.
func (d *durations) track(validations map[labels.Marker]*validation, now time.Time) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, m := range d.order {
		switch {
		case validations[m] != nil:
			d.valid[m] = true
			delete(d.lost, m)
		case d.valid[m]:
			d.valid[m] = false
			d.lost[m] = now
		}
	}
}

// since returns when the validation behind a missing marker began.
func (d *durations) since(m labels.Marker, before *validation) time.Time {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	began := d.begun
	if before != nil {
		began = before.at
	}
	return times.Later(began, d.lost[m])
}

// after returns how long this validation took, after that of the previous marker; nil for the first marker. It returns
// false if the times do not show it.
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

// MarkerNames returns the names of DefaultMarkers, in their order.
func MarkerNames() []string {
	var names []string
	for _, m := range DefaultMarkers {
		names = append(names, string(m))
	}
	return names
}

// MarkersNamed returns those of DefaultMarkers with these names, in their order. It fails on any other name.
func MarkersNamed(names []string) ([]labels.Marker, error) {
	for _, name := range names {
		if !slices.Contains(MarkerNames(), name) {
			return nil, fmt.Errorf("unknown marker %q", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(DefaultMarkers), func(m labels.Marker) bool {
		return !slices.Contains(names, string(m))
	}), nil
}
