package simulator

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// play runs a container for some seconds of simulated time and lists its states, without repeats.
func play(c *container, length time.Duration, fault func(at time.Duration) Mode) []string {
	begin := time.Unix(0, 0)
	var states []string
	for at := time.Duration(0); at <= length; at += 100 * time.Millisecond {
		c.run(conditions{
			now: begin.Add(at), node: &node{}, fault: fault(at),
			duration: time.Second, timing: DefaultTiming(),
		})
		states = append(states, describe(c))
	}
	return slices.Compact(states)
}

func describe(c *container) string {
	switch {
	case c.phase == waiting:
		return c.reason
	case c.phase == terminated:
		return "terminated"
	case c.ready:
		return "ready"
	case c.started:
		return "started"
	default:
		return "running"
	}
}

func always(mode Mode) func(time.Duration) Mode {
	return func(time.Duration) Mode { return mode }
}

func between(mode Mode, from, to time.Duration) func(time.Duration) Mode {
	return func(at time.Duration) Mode {
		if at >= from && at < to {
			return mode
		}
		return ""
	}
}

func TestContainer(t *testing.T) {
	probe := &corev1.Probe{}
	tests := map[string]struct {
		spec  corev1.Container
		fault func(time.Duration) Mode
		want  []string
	}{
		"without probes it is ready once it runs": {
			fault: always(""), want: []string{"", "ready"},
		},
		"a startup probe delays started": {
			spec: corev1.Container{StartupProbe: probe}, fault: always(""), want: []string{"running", "ready"},
		},
		"a readiness probe delays only ready": {
			spec: corev1.Container{ReadinessProbe: probe}, fault: always(""), want: []string{"started", "ready"},
		},
		"it crashes until the fault is removed": {
			spec:  corev1.Container{StartupProbe: probe},
			fault: between(CrashLoop, 0, 6*time.Second),
			want: []string{
				"running", "terminated", "CrashLoopBackOff", "running", "terminated", "CrashLoopBackOff", "running", "ready",
			},
		},
		"a ready container crashes": {
			spec:  corev1.Container{StartupProbe: probe},
			fault: between(CrashLoop, 3*time.Second, 5*time.Second),
			want:  []string{"running", "ready", "terminated", "CrashLoopBackOff", "running", "ready"},
		},
		"its image cannot be pulled": {
			fault: between(ImagePull, 0, 3*time.Second),
			want:  []string{"", "ErrImagePull", "ImagePullBackOff", "ready"},
		},
		"a container that runs needs no pull": {
			fault: between(ImagePull, 3*time.Second, 5*time.Second), want: []string{"", "ready"},
		},
		"it never becomes ready": {
			spec: corev1.Container{StartupProbe: probe}, fault: always(NeverReady), want: []string{"running"},
		},
		"a ready container becomes unready but stays started": {
			spec:  corev1.Container{StartupProbe: probe},
			fault: between(NeverReady, 3*time.Second, 5*time.Second),
			want:  []string{"running", "ready", "started", "ready"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := play(&container{spec: test.spec}, 20*time.Second, test.fault)
			if !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// TestAPeriodicCheckNoticesAtItsNextLook: an init container that polls every 5 s finds a marker written after 6 s only
// after 10 s, and one that begins what it waits for never at its first look.
func TestAPeriodicCheckNoticesAtItsNextLook(t *testing.T) {
	begin := time.Unix(0, 0)
	loop := program{verb: verbWait, markers: []string{markerToolkit}, period: 5 * time.Second}
	waiter := program{verb: verbWait, markers: []string{markerToolkit}}
	cuda := program{verb: verbValidate, markers: []string{componentCUDA}, period: 5 * time.Second, polls: true}
	for name, test := range map[string]struct {
		program program
		// written is when the marker is, and want when the container ends.
		written, want time.Duration
	}{
		"written before its first look":        {program: loop, want: time.Second},
		"written between two looks":            {program: loop, written: 6 * time.Second, want: 11 * time.Second},
		"without a period it looks at changes": {program: waiter, written: 6 * time.Second, want: 7 * time.Second},
		"its first look is in vain":            {program: cuda, want: 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			n := &node{driverOnHost: true, sim: &Simulator{}, markers: map[string]string{}}
			c := &container{program: test.program}
			var ended time.Duration
			for at := time.Duration(0); at <= 20*time.Second; at += 100 * time.Millisecond {
				if at == test.written {
					n.prove([]string{markerToolkit})
				}
				if c.runInit(conditions{now: begin.Add(at), node: n, init: true, duration: time.Second}) {
					ended = at
					break
				}
			}
			if ended != test.want {
				t.Errorf("it ends after %s, want %s", ended, test.want)
			}
		})
	}
}
