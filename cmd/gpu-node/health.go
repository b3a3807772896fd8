package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/export"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/health"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/termination"
)

// healthVariables are the variables of health.
var healthVariables = variables{
	"node-name": "NODE_NAME", "port": "METRICS_PORT", "nvml-interval": "NVML_INTERVAL",
}

// healthAgent has the flags of health.
type healthAgent struct {
	nodeName          string
	kernelLog         string
	bootIDFile        string
	procRoot          string
	serviceAccountDir string
	terminationLog    string
	port              int
	dir, statFile     string
	nvml              health.NVML
}

func (h *healthAgent) register(flags *pflag.FlagSet) {
	flags.StringVar(&h.nodeName, "node-name", "", "name of the node")
	flags.StringVar(&h.kernelLog, "kernel-log", "/dev/kmsg", "the kernel log")
	flags.StringVar(&h.bootIDFile, "boot-id-file", labels.BootIDFile, "file with the ID of the node's current boot")
	flags.StringVar(&h.procRoot, "proc-root", "/proc",
		"where procfs is mounted, in which the driver shows the UUIDs of GPUs")
	flags.StringVar(&h.serviceAccountDir, "service-account-dir", nodeapi.ServiceAccountDir,
		"directory of the pod's token and the API server's CA certificate")
	flags.StringVar(&h.dir, "dir", labels.ValidationsDir, "directory of the markers, of which that of the driver is read")
	flags.StringVar(&h.statFile, "stat-file", labels.ProcStat,
		"file with the time at which the node was booted, in its line btime")
	flags.StringVar(&h.nvml.SysRoot, "sys-root", "/sys", "sysfs, as mounted here")
	flags.StringVar(&h.nvml.Program, "program", labels.CUDABinary,
		"gpu-node-cuda, which has the sessions with NVML and is linked to the C library")
	flags.DurationVar(&h.nvml.Every, "nvml-interval", health.DefaultSessions,
		"time between two sessions with NVML, with a unit, at most 5m; 0s for none")
	flags.DurationVar(&h.nvml.Limit, "nvml-timeout", health.DefaultSessionLimit,
		"longest time of a session with NVML, with a unit")
	flags.IntVar(&h.port, "port", health.DefaultPort, "port of /metrics and /healthz; 0 for any free port")
	registerTerminationLog(flags, &h.terminationLog)
}

func healthCommand() *cobra.Command {
	var agent healthAgent
	command := &cobra.Command{
		Use:   "health",
		Short: "Report the faults of GPUs and NVSwitches (needs a privileged container)",
		Long: `Read the errors of GPUs (Xid) and NVSwitches (SXid) from the kernel log until SIGTERM, and from time to time
the state of the GPUs from the driver's library (NVML). Report in an annotation of the Node which GPUs are
unhealthy, and serve metrics at /metrics.

It opens no GPU itself: another program does, for each session with NVML, and ends. There are no sessions while
the driver is not validated or is upgraded, while a label nvidia.com/gpu.deploy.* of the Node has a value that
begins with paused-, and while nvidia.com/mig.config.state is pending or rebooting.

The driver does not log each reset of a GPU. After a reset, write on the node:
  echo 'gpu-operator: GPU 0000:1b:00.0 has been reset' > /dev/kmsg

Environment variables, overridden by the flags:
  NODE_NAME      as --node-name
  METRICS_PORT   as --port
  NVML_INTERVAL  as --nvml-interval`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := agent.complete(command.Flags()); err != nil {
				return err
			}
			return fail(agent.run(), agent.terminationLog)
		},
	}
	agent.register(command.Flags())
	return command
}

// complete sets flags that are not given from the environment, and validates all.
func (h *healthAgent) complete(flags *pflag.FlagSet) error {
	if err := healthVariables.apply(flags); err != nil {
		return err
	}
	if h.nodeName == "" {
		return errNoNode
	}
	if h.nvml.Every < 0 || h.nvml.Limit <= 0 {
		return errors.New("--nvml-interval must not be below 0s, and --nvml-timeout must be above it")
	}
	if h.nvml.Every > health.MaxSessions {
		return fmt.Errorf("--nvml-interval (NVML_INTERVAL) must not be above %s, is %s: "+
			"links and throttling are measured over %s", health.MaxSessions, h.nvml.Every, health.DefaultWindow)
	}
	return checkPort(h.port)
}

func (h *healthAgent) run() error {
	ctx, stop := termination.Context()
	defer stop()
	boot, err := marker.BootID(h.bootIDFile)
	if err != nil {
		return err
	}
	api, err := nodeapi.InCluster(h.serviceAccountDir)
	if err != nil {
		return fmt.Errorf("the faults of GPUs cannot be reported: %w", err)
	}
	kernelLog, err := os.Open(filepath.Clean(h.kernelLog))
	if err != nil {
		return fmt.Errorf("the kernel log cannot be read; is the container privileged? %w", err)
	}
	booted, err := bootTime()
	if err != nil {
		return err
	}
	h.nvml.Confirm, h.nvml.Window = health.DefaultConfirm, health.DefaultWindow
	h.nvml.Markers = marker.Dir{Path: h.dir, BootID: boot, StatFile: h.statFile}
	agent := health.New(health.Options{
		Node: h.nodeName, Boot: boot, Booted: booted, ProcRoot: h.procRoot, API: api,
		Debounce: health.DefaultDebounce, Interval: health.DefaultInterval, Urgent: health.DefaultUrgent,
		NVML: h.nvml, Log: newLog(),
	})
	return h.serve(ctx, agent, kernelLog)
}

// serve runs the agent and serves its metrics, until one of them ends.
func (h *healthAgent) serve(ctx context.Context, agent *health.Agent, kernelLog *os.File) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		served <- export.Serve(ctx, h.port, agent, newLog())
		cancel()
	}()
	err := agent.Run(ctx, kernelLog)
	cancel()
	if serveErr := <-served; err == nil {
		err = serveErr
	}
	return err
}

// bootTime returns when the clock of the kernel log began, which stands still while the machine is suspended.
func bootTime() (time.Time, error) {
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &since); err != nil {
		return time.Time{}, fmt.Errorf("read the clock of the kernel: %w", err)
	}
	return time.Now().Add(-time.Duration(since.Nano())), nil
}
