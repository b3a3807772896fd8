package simulator

import (
	"fmt"
	"hash/fnv"
	"time"
)

// Timing is how long steps take on a simulated node. Each duration is varied by Jitter, reproducibly for a seed.
type Timing struct {
	// Ready is how long the main containers of a pod take until they are ready, by the pod's label "app"; DefaultReady
	// applies to all other pods.
	Ready        map[string]time.Duration
	DefaultReady time.Duration
	// Validate is how long "gpu-node validate" takes once it can succeed.
	Validate time.Duration
	// Init is how long an unrecognised init container takes.
	Init time.Duration
	// Partition is how long a change of the MIG layout takes once nothing uses the GPUs.
	Partition time.Duration
	// Crash is how long a crashing container runs, and how long it is then shown as terminated.
	Crash time.Duration
	// Backoff is the first pause before a restart or another pull; it doubles up to BackoffMax.
	Backoff, BackoffMax time.Duration
	// Terminate is how long a deleted pod takes to end, unless its grace period is shorter.
	Terminate time.Duration
	// Relist is the minimum time between two status updates of a pod: a kubelet relists its containers once a second,
	// and reports several steps in one update. 0 reports each step.
	Relist time.Duration
	// Jitter is the fraction by which each duration may be longer or shorter.
	Jitter float64
}

// DefaultTiming returns a timing with the proportions of a real node, in seconds instead of minutes.
func DefaultTiming() Timing {
	return Timing{
		Ready: map[string]time.Duration{
			appDriver:    3 * time.Second,
			appToolkit:   time.Second,
			appPlugin:    time.Second,
			appValidator: 500 * time.Millisecond,
		},
		DefaultReady: time.Second,
		Validate:     300 * time.Millisecond,
		Init:         300 * time.Millisecond,
		Partition:    3 * time.Second,
		Crash:        time.Second,
		Backoff:      2 * time.Second,
		BackoffMax:   10 * time.Second,
		Terminate:    500 * time.Millisecond,
		Jitter:       0.2,
	}
}

// Scale returns the timing with every duration multiplied, for example by 0.1 for a fast test.
func (t Timing) Scale(factor float64) Timing {
	scale := func(d time.Duration) time.Duration { return time.Duration(float64(d) * factor) }
	ready := make(map[string]time.Duration, len(t.Ready))
	for app, d := range t.Ready {
		ready[app] = scale(d)
	}
	return Timing{
		Ready:        ready,
		DefaultReady: scale(t.DefaultReady),
		Validate:     scale(t.Validate),
		Init:         scale(t.Init),
		Partition:    scale(t.Partition),
		Crash:        scale(t.Crash),
		Backoff:      scale(t.Backoff),
		BackoffMax:   scale(t.BackoffMax),
		Terminate:    scale(t.Terminate),
		Relist:       scale(t.Relist),
		Jitter:       t.Jitter,
	}
}

// ready returns how long the main containers of a pod with this label take.
func (t Timing) ready(app string) time.Duration {
	if d, ok := t.Ready[app]; ok {
		return d
	}
	return t.DefaultReady
}

// backoff returns the pause before the next attempt after a number of failed ones.
func (t Timing) backoff(failures int32) time.Duration {
	pause := t.Backoff
	for range min(failures, 30) {
		if pause >= t.BackoffMax {
			break
		}
		pause *= 2
	}
	return min(pause, t.BackoffMax)
}

// dice varies durations pseudo-randomly, by seed and subject.
type dice struct {
	seed   int64
	jitter float64
}

func (d dice) vary(duration time.Duration, subject ...string) time.Duration {
	hash := fnv.New64a()
	fmt.Fprint(hash, d.seed, subject)
	// A number from -1 to 1. FNV mixes its low bits best.
	unit := float64(hash.Sum64()%20001)/10000 - 1
	return time.Duration(float64(duration) * (1 + d.jitter*unit))
}
