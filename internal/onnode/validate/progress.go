package validate

import (
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// progress is when the validation of a component began, earlier runs that failed or were killed included. A run
// leaves it to the next one in a file, which counts for the same boot and driver instance only.
type progress struct {
	component labels.Marker
	markers   marker.Dir
	log       *slog.Logger

	// started is when the first run began.
	started time.Time
	// renewed is set if the component was validated before, in this boot and for this driver.
	renewed bool
	// instance is the driver instance in the file, if saved.
	instance string
	saved    bool
}

// progress returns the progress of earlier runs, or a new one if there is none or the marker is valid.
func (r Run) progress() *progress {
	p := &progress{component: r.Component, markers: r.Markers, log: r.Log, started: time.Now()}
	if _, err := r.Markers.Read(r.Component); err == nil {
		p.renewed = true
		return p
	}
	left, err := r.Markers.ReadProgress(r.Component)
	if err != nil {
		return p
	}
	started, renewed := Began(left)
	// Not a time in the future, if the clock was set back.
	if !started.IsZero() && started.Before(p.started) {
		p.started, p.renewed = started, renewed
	}
	return p
}

// Began returns when the validation of a marker began, the zero time if the marker does not have it, and whether the
// component had been validated before.
func Began(assignments []marker.Assignment) (started time.Time, renewed bool) {
	for _, a := range assignments {
		switch a.Key {
		case labels.StartedAtKey:
			if seconds, err := strconv.ParseInt(a.Value, 10, 64); err == nil {
				started = time.Unix(seconds, 0)
			}
		case labels.RenewedKey:
			renewed = a.Value == labels.True
		}
	}
	return started, renewed
}

// since returns the assignment with the start of the validation.
func (p *progress) since() []marker.Assignment {
	return []marker.Assignment{{Key: labels.StartedAtKey, Value: strconv.FormatInt(p.started.Unix(), 10)}}
}

// assignments returns what Began reads.
func (p *progress) assignments() []marker.Assignment {
	if !p.renewed {
		return p.since()
	}
	return slices.Concat([]marker.Assignment{{Key: labels.RenewedKey, Value: labels.True}}, p.since())
}

// save writes the file for the driver instance: a driver that becomes ready while its validation is running does not
// restart the count. A failure is only logged, because the file is for metrics.
func (p *progress) save(driverInstance string) {
	if p.saved && p.instance == driverInstance {
		return
	}
	p.saved, p.instance = true, driverInstance
	if err := p.markers.WriteProgress(p.component, p.assignments(), driverInstance); err != nil {
		p.log.Warn("the start of this validation cannot be saved for the next run; only metrics are affected", "error", err)
	}
}

// end removes the file, once the marker has the same assignments.
func (p *progress) end() {
	if err := p.markers.RemoveProgress(p.component); err != nil {
		p.log.Warn("a file that is no longer needed cannot be removed", "error", err)
	}
}
