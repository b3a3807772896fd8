package simulator

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/test/simulator/host"
)

type phase int

const (
	waiting phase = iota
	running
	terminated
)

// Reasons that a kubelet reports.
const (
	reasonInitializing = "PodInitializing"
	reasonCreating     = "ContainerCreating"
	reasonCompleted    = "Completed"
	reasonError        = "Error"
	reasonCrashLoop    = "CrashLoopBackOff"
	reasonPullFailed   = "ErrImagePull"
	reasonPullBackOff  = "ImagePullBackOff"
)

// crashLog is the log of a container that crashes, and cleans up before it ends.
const crashLog = "starting\n\x1b[31msimulated failure\x1b[0m\ncleaning up\n"

// exitLostGPU and lostGPU are the exit code and the termination message of gpu-node recheck after a loss of one GPU.
const (
	exitLostGPU = 65
	lostGPU     = "1 of 8 GPUs lost since the validation: 0000:1b:00.0 is not listed by the driver; see the kernel log, " +
		"and reset the GPU or reboot the node\n"
)

// container is one container of a pod, as the kubelet sees it.
type container struct {
	spec    corev1.Container
	program program

	phase   phase
	reason  string
	message string
	started bool
	ready   bool
	// since is when the phase began, due when it ends by itself, or zero if it does not.
	since, due time.Time
	// passed: a program that checks periodically has found what it waits for.
	passed bool
	// readyAt is when the probes of a running container succeed.
	readyAt  time.Time
	restarts int32
	pulls    int32
	exitCode int32
	ranSince time.Time
	last     *corev1.ContainerStateTerminated
	// process is the real process, on a node that runs processes.
	process *host.Process
}

// conditions is what the progress of a container depends on at one moment.
type conditions struct {
	now  time.Time
	node *node
	pod  *pod
	// start starts the real process.
	start func(container host.Container) (*host.Process, error)
	// init: the container is an init container.
	init  bool
	fault Mode
	// log is that of a container which crashes for a cause of its own.
	log string
	// duration is how long the container takes to finish or to become ready.
	duration time.Duration
	timing   Timing
	// exitAfter is how long the container runs until it succeeds; zero: forever.
	exitAfter time.Duration
}

// reached reports whether t is set and not after now.
func reached(now, moment time.Time) bool { return !moment.IsZero() && !now.Before(moment) }

// run advances a main container.
func (c *container) run(at conditions) {
	if c.genuine(at) {
		c.runProcess(at)
		return
	}
	if c.process != nil {
		c.process.Kill()
		c.process = nil
	}
	switch c.phase {
	case waiting:
		c.runWaiting(at)
	case running:
		c.runRunning(at)
	case terminated:
		if c.exitCode != 0 && reached(at.now, c.due) {
			c.backOff(at)
		}
	}
}

// backOff starts the pause before the next restart of the container.
func (c *container) backOff(at conditions) {
	pause := at.timing.backoff(c.restarts)
	c.wait(at.now, reasonCrashLoop, fmt.Sprintf("back-off %s restarting failed container=%s", pause, c.spec.Name), pause)
}

// runWaiting ends a pause by a start or a failed pull. Without probes a container is ready as soon as it runs, so the
// time until it is ready is spent here.
func (c *container) runWaiting(at conditions) {
	if c.due.IsZero() {
		c.due = at.now
		if !c.probed() {
			c.due = at.now.Add(at.duration)
		}
	}
	switch {
	case !reached(at.now, c.due):
	case at.fault != ImagePull:
		if c.last != nil {
			c.restarts++
		}
		c.start(at.now)
		c.runRunning(at)
	case c.reason == reasonPullFailed:
		pause := at.timing.backoff(c.pulls)
		c.pulls++
		c.wait(at.now, reasonPullBackOff, fmt.Sprintf("Back-off pulling image %q", c.spec.Image), pause)
	default:
		c.wait(at.now, reasonPullFailed,
			fmt.Sprintf("failed to pull and unpack image %q: not found", c.spec.Image), at.timing.Crash)
	}
}

func (c *container) runRunning(at conditions) {
	c.due = c.end(at)
	if reached(at.now, c.due) {
		if at.fault.crashes() {
			c.crash(at)
			return
		}
		c.terminate(at.now, 0, reasonCompleted, "")
		return
	}
	c.becomeReady(at)
}

// crash ends a container with a fault.
func (c *container) crash(at conditions) {
	code, message := int32(1), c.crashMessage(at.log)
	if at.fault == LosesGPU {
		code, message = exitLostGPU, lostGPU
	}
	c.terminate(at.now, code, reasonError, message)
	c.due = at.now.Add(at.timing.Crash)
}

// crashMessage returns the termination message of a container that crashes and writes none itself.
func (c *container) crashMessage(log string) string {
	if c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		return cmp.Or(log, crashLog)
	}
	return ""
}

// becomeReady makes a running container ready once its probes succeed.
func (c *container) becomeReady(at conditions) {
	switch {
	case at.fault == NeverReady:
		c.ready, c.readyAt = false, time.Time{}
		c.started = c.started || c.spec.StartupProbe == nil
	case !c.probed():
		c.started, c.ready = true, true
	case c.ready:
	case at.fault.crashes(), at.fault == DriverFails, c.process == nil && c.program.blocked(at.node):
		c.readyAt = time.Time{}
	case c.readyAt.IsZero():
		c.readyAt = at.now.Add(at.duration)
	case reached(at.now, c.readyAt):
		c.started, c.ready = true, true
	}
}

// end returns when a running container that crashes or succeeds exits.
func (c *container) end(at conditions) time.Time {
	switch {
	case at.fault.crashes() && !c.due.IsZero():
		return c.due
	case at.fault.crashes():
		return at.now.Add(at.timing.Crash)
	case at.exitAfter > 0:
		return c.since.Add(at.exitAfter)
	default:
		return time.Time{}
	}
}

// probed reports whether the container has probes that readiness depends on.
func (c *container) probed() bool {
	return c.spec.StartupProbe != nil || c.spec.ReadinessProbe != nil
}

func (c *container) start(now time.Time) {
	c.phase, c.reason, c.message, c.passed = running, "", "", false
	c.since, c.due, c.readyAt = now, time.Time{}, time.Time{}
	c.started, c.ready = c.spec.StartupProbe == nil, false
}

func (c *container) wait(now time.Time, reason, message string, pause time.Duration) {
	c.phase, c.reason, c.message = waiting, reason, message
	c.since, c.due = now, now.Add(pause)
	c.started, c.ready = false, false
}

func (c *container) terminate(now time.Time, exitCode int32, reason, message string) {
	c.ranSince = c.since
	c.phase, c.reason, c.message, c.exitCode = terminated, reason, message, exitCode
	c.since, c.due, c.readyAt = now, time.Time{}, time.Time{}
	c.started, c.ready = false, false
	if exitCode != 0 {
		c.last = c.state().Terminated
	}
}

// next returns when the container has to be processed again; zero: only on an event.
func (c *container) next() time.Time {
	if c.phase == running && !c.ready && !c.readyAt.IsZero() {
		return earlier(c.due, c.readyAt)
	}
	return c.due
}

// earlier returns the earlier of two times; the zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
