package validate

import (
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
)

// climb is a component's way to its proof. Provers that give up or are killed may have begun it: each
// leaves it to the next one in a file, which counts for the same boot and driver instance only.
type climb struct {
	component labels.Marker
	markers   marker.Dir
	log       *slog.Logger

	// started is when its first prover began.
	started time.Time
	// renewed tells that the component was proved before, in this boot and for this driver.
	renewed bool
	// instance is the driver instance in the file, if noted.
	instance string
	noted    bool
}

// climb returns the one that earlier provers have begun, or a new one where the component is proved.
func (r Run) climb() *climb {
	c := &climb{component: r.Component, markers: r.Markers, log: r.Log, started: time.Now()}
	if _, err := r.Markers.Read(r.Component); err == nil {
		c.renewed = true
		return c
	}
	left, err := r.Markers.ReadProving(r.Component)
	if err != nil {
		return c
	}
	started, renewed := Began(left)
	// A clock that was put back since makes no time that is yet to come.
	if !started.IsZero() && started.Before(c.started) {
		c.started, c.renewed = started, renewed
	}
	return c
}

// Began returns what a marker tells of its prover: when it began, the zero time if that is not told, and
// whether the component had been proved before.
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

// since is the assignment that tells when the climb began.
func (c *climb) since() []marker.Assignment {
	return []marker.Assignment{{Key: labels.StartedAtKey, Value: strconv.FormatInt(c.started.Unix(), 10)}}
}

// assignments are what Began reads.
func (c *climb) assignments() []marker.Assignment {
	if !c.renewed {
		return c.since()
	}
	return slices.Concat([]marker.Assignment{{Key: labels.RenewedKey, Value: labels.True}}, c.since())
}

// note keeps the file that of the driver instance: a driver that becomes ready while its proof is awaited
// is no reason to begin anew. The file is for metrics only, so that a failure is worth a line.
func (c *climb) note(instance string) {
	if c.noted && c.instance == instance {
		return
	}
	c.noted, c.instance = true, instance
	if err := c.markers.WriteProving(c.component, c.assignments(), instance); err != nil {
		c.log.Warn("the next prover will not know since when this one has tried", "error", err)
	}
}

// end removes the file, once the marker tells the same.
func (c *climb) end() {
	if err := c.markers.RemoveProving(c.component); err != nil {
		c.log.Warn("a file that the marker outdates is left behind", "error", err)
	}
}
