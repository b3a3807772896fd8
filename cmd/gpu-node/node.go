package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/termination"
)

// node has the flags of all commands that use markers.
type node struct {
	dir            string
	bootIDFile     string
	statFile       string
	terminationLog string
	timeout        time.Duration
}

func (n *node) register(flags *pflag.FlagSet) {
	n.registerMarkers(flags)
	registerTerminationLog(flags, &n.terminationLog)
	flags.DurationVar(&n.timeout, "timeout", 0, "fail after this time, with a unit (90s, 20m); 0s for never")
}

// registerMarkers registers the flags with the places of the markers and of what they are compared with.
func (n *node) registerMarkers(flags *pflag.FlagSet) {
	flags.StringVar(&n.dir, "dir", labels.ValidationsDir, "directory of the markers; need not exist yet")
	flags.StringVar(&n.bootIDFile, "boot-id-file", labels.BootIDFile, "file with the ID of the node's current boot")
	flags.StringVar(&n.statFile, "stat-file", labels.ProcStat,
		"file with the time at which the node was booted, in its line btime")
}

// work is what a command does until ctx ends: by the timeout, or by the SIGTERM of the kubelet.
type work func(ctx context.Context, markers marker.Dir, log *slog.Logger) error

// run runs the work and writes the reason of a failure to the termination message.
func (n *node) run(work work) error {
	return n.runThen(work, func(context.Context) error { return nil })
}

// runThen runs the work and, if it succeeds, last, during which a signal ends the program immediately. An earlier
// signal has ended last's ctx.
func (n *node) runThen(work work, last func(ctx context.Context) error) error {
	if n.timeout < 0 {
		return fmt.Errorf("--timeout=%s is negative; use 0s to wait without a limit", n.timeout)
	}
	ctx, stop := termination.Context()
	defer stop()
	if n.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, n.timeout, fmt.Errorf("timeout of %s", n.timeout))
		defer cancel()
	}
	err := n.do(ctx, work)
	if err == nil {
		stop()
		err = last(ctx)
	}
	return fail(err, n.terminationLog)
}

func (n *node) do(ctx context.Context, work work) error {
	markers, err := n.markers()
	if err != nil {
		return err
	}
	return work(ctx, markers, newLog())
}

// markers returns the markers of the node in its current boot.
func (n *node) markers() (marker.Dir, error) {
	boot, err := marker.BootID(n.bootIDFile)
	return marker.Dir{Path: n.dir, BootID: boot, StatFile: n.statFile}, err
}

func registerTerminationLog(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "termination-log", labels.TerminationLog,
		"the container's terminationMessagePath; gets the reason of a failure, or which driver was validated, if it exists")
}

// fail returns err as a failure, or nil, and writes it to the termination message.
func fail(err error, terminationLog string) error {
	if err == nil {
		return nil
	}
	leaveMessage(err.Error(), terminationLog)
	return failure{err}
}

// leaveMessage writes the termination message of the container.
func leaveMessage(message, terminationLog string) {
	if err := termination.WriteMessage(terminationLog, message); err != nil {
		newLog().Warn("the termination message cannot be written; it is only in this log", "error", err, "message", message)
	}
}

func newLog() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }
