package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/cleanup"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/termination"
)

// mostMessage is how much of a termination message the kubelet reports, in bytes.
const mostMessage = 4096

// errRelative is a path that the flags require from the root.
var errRelative = errors.New("it must be an absolute path")

// hostCleanup has the flags of cleanup.
type hostCleanup struct {
	cleanup.Options
	terminationLog     string
	patience, interval time.Duration
}

func cleanupCommand() *cobra.Command {
	var c hostCleanup
	command := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what the stack has left on the host, once none of its pods is there any more",
		Long: `Remove what the stack has left on the host: markers, device specifications, sockets, the toolkit's programs,
directories. Only what the stack makes is removed, and nothing that is used or mounted. No pod of the stack may be on
the node. The host's root must be mounted with its /proc.

What is used is tried again for --patience. Then this succeeds, and writes one line for each thing that stays, with the
reason, to the log and to the termination message. Kernel modules are listed there, and never unloaded. It fails if
something could not be removed; a further run continues.

A container runtime that still runs with the toolkit's programs, although its configuration does not name them any
more, gets SIGHUP once, to reload it. containerd ends by that, and its supervisor restarts it: its containers keep
running. This needs hostPID.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return c.run() },
	}
	flags := command.Flags()
	registerTerminationLog(flags, &c.terminationLog)
	flags.StringVar(&c.HostRoot, "host-root", labels.HostRootMount, "the host's root file system, as mounted here")
	flags.StringVar(&c.RootFS, "root-fs", "/", "the root file system of the operating system, on the host")
	flags.StringVar(&c.DriverInstallDir, "driver-install-dir", labels.DriverRoot,
		"the driver's root file system, on the host")
	flags.StringVar(&c.ToolkitInstallDir, "toolkit-install-dir", labels.ToolkitInstallDir,
		"where the toolkit has installed its programs, on the host")
	flags.StringVar(&c.MPSRoot, "mps-root", labels.MPSRoot, "directory of the Multi-Process Service, on the host")
	flags.StringArrayVar(&c.RuntimeFiles, "runtime-file", nil,
		"configuration file of the container runtime on the host that the toolkit has changed, besides the usual ones; "+
			"repeatable")
	flags.StringArrayVar(&c.RuntimeSockets, "runtime-socket", nil,
		"socket on the host on which the container runtime listens, besides the usual ones; repeatable")
	flags.BoolVar(&c.KeepRuntimes, "keep-runtimes", false,
		"only report a container runtime that still runs with the toolkit's programs")
	flags.StringVar(&c.MountInfo, "mount-info", "/proc/self/mountinfo", "file with the mounts of this program")
	flags.DurationVar(&c.patience, "patience", time.Minute, "how long to try again what is used")
	flags.DurationVar(&c.interval, "interval", 2*time.Second, "time between tries")
	return command
}

func (c *hostCleanup) run() error {
	if err := c.check(); err != nil {
		return err
	}
	ctx, stop := termination.Context()
	defer stop()
	log := newLog()
	report, err := c.clean(ctx, log)
	if err != nil {
		return fail(err, c.terminationLog)
	}
	for _, left := range report.Left {
		log.Warn("stays", "path", left.Path, "by", left.By, "why", left.Why)
	}
	log.Info("the host is clean", "left", len(report.Left), "modules", report.Modules)
	if text := report.Text(mostMessage - 1); text != "" {
		err = termination.WriteMessage(c.terminationLog, text)
	}
	if err != nil {
		log.Warn("the termination message cannot be written; what stays is only in this log", "error", err)
	}
	return nil
}

// check returns an error for a flag that would make the cleanup look in the wrong place.
func (c *hostCleanup) check() error {
	paths := map[string][]string{
		"host-root": {c.HostRoot}, "root-fs": {c.RootFS}, "driver-install-dir": {c.DriverInstallDir},
		"toolkit-install-dir": {c.ToolkitInstallDir}, "mps-root": {c.MPSRoot}, "runtime-file": c.RuntimeFiles,
		"runtime-socket": c.RuntimeSockets,
	}
	for flag, values := range paths {
		for _, value := range values {
			if !filepath.IsAbs(value) {
				return fmt.Errorf("--%s=%s: %w", flag, value, errRelative)
			}
		}
	}
	return nil
}

// clean removes what it can, and tries again what is used, until the time is up.
func (c *hostCleanup) clean(ctx context.Context, log *slog.Logger) (cleanup.Report, error) {
	tick := time.NewTicker(c.interval)
	defer tick.Stop()
	for deadline := time.Now().Add(c.patience); ; {
		report, err := cleanup.Run(c.Options)
		for _, path := range report.Removed {
			log.Info("removed", "path", path)
		}
		for _, socket := range report.Reloaded {
			log.Info("the container runtime still had the toolkit's programs, and got SIGHUP to reload its configuration",
				"socket", socket)
		}
		c.Reloaded = append(c.Reloaded, report.Reloaded...)
		busy := report.Busy()
		if err != nil || len(busy) == 0 || time.Now().After(deadline) {
			return report, err
		}
		log.Info("waiting", "used", len(busy), "first", busy[0].String())
		select {
		case <-ctx.Done():
			return report, fmt.Errorf("%w while %s", context.Cause(ctx), busy[0])
		case <-tick.C:
		}
	}
}
