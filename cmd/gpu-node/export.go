package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/export"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
)

// metricsPortEnv is the variable of --port; the name is that of NVIDIA's exporter.
const metricsPortEnv = "METRICS_PORT"

// exporter holds the flags of export.
type exporter struct {
	node              node
	nodeName          string
	serviceAccountDir string
	port              int
	stages            []string
	driver            validate.Driver
}

func exportCommand() *cobra.Command {
	var exporter exporter
	command := &cobra.Command{
		Use:   "export",
		Short: "Serve metrics of the GPU stack on this node (needs a privileged container)",
		Long: `Serve metrics of the GPU stack on this node at /metrics until SIGTERM: those of NVIDIA's node status
exporter, and how long each stage took. The driver is checked every minute, as validate driver does,
which needs the same mounts and privileges.

Environment variables, over which the flags win:
  NODE_NAME     as --node-name
  METRICS_PORT  as --port`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := exporter.complete(command.Flags()); err != nil {
				return err
			}
			stages, err := stagesNamed(exporter.stages)
			if err != nil {
				return err
			}
			return exporter.node.run(func(ctx context.Context, markers marker.Dir, log *slog.Logger) error {
				return exporter.serve(ctx, stages, markers, log)
			})
		},
	}
	exporter.register(command.Flags())
	return command
}

func (e *exporter) register(flags *pflag.FlagSet) {
	e.node.register(flags)
	flags.StringVar(&e.nodeName, "node-name", os.Getenv("NODE_NAME"), "the node; default from NODE_NAME")
	flags.StringVar(&e.serviceAccountDir, "service-account-dir", nodeapi.ServiceAccountDir,
		"directory of the pod's token and of the API server's authority")
	flags.IntVar(&e.port, "port", export.DefaultPort, "port of /metrics and /healthz; default from "+metricsPortEnv+"; 0 is any free one")
	flags.StringSliceVar(&e.stages, "stages", stageNames(), "the stages that are proved on this node")
	registerDriver(flags, &e.driver)
}

// complete takes what the flags leave open from the environment, and checks it.
func (e *exporter) complete(flags *pflag.FlagSet) error {
	if e.nodeName == "" {
		return errors.New("no node given; set the environment variable NODE_NAME from the field spec.nodeName, or --node-name")
	}
	if value := os.Getenv(metricsPortEnv); value != "" && !flags.Changed("port") {
		port, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("the environment variable %s is %q; use a number from 1 to 65535", metricsPortEnv, value)
		}
		e.port = port
	}
	if e.port < 0 || e.port > 65535 {
		return fmt.Errorf("there is no port %d; use --port or %s from 1 to 65535", e.port, metricsPortEnv)
	}
	return nil
}

func (e *exporter) serve(ctx context.Context, stages []labels.Marker, markers marker.Dir, log *slog.Logger) error {
	e.driver.MarkersDir, e.driver.Run = markers.Path, validate.Chroot
	exporter := export.New(export.Options{
		Node: e.nodeName, Markers: markers, Stages: stages, SysRoot: e.driver.SysRoot,
		CheckDriver: e.driver.Check, DriverInterval: export.DefaultDriverInterval, DriverTimeout: export.DefaultDriverTimeout,
		Resources: resources(e.serviceAccountDir, e.nodeName),
		Log:       log,
	})
	go exporter.Run(ctx)
	return exporter.Serve(ctx, e.port)
}

// resources reads those of the Node. A pod that cannot ask the API server still has metrics to tell,
// so that this is a failure of each request.
func resources(serviceAccountDir, node string) func(context.Context) (nodeapi.Resources, error) {
	client, err := nodeapi.InCluster(serviceAccountDir)
	if err != nil {
		return func(context.Context) (nodeapi.Resources, error) { return nodeapi.Resources{}, err }
	}
	return func(ctx context.Context) (nodeapi.Resources, error) { return client.Resources(ctx, node) }
}

// registerDriver registers the flags that say where the driver is and where the kernel tells of it.
func registerDriver(flags *pflag.FlagSet, driver *validate.Driver) {
	flags.StringVar(&driver.HostRoot, "host-root", labels.HostRootMount, "the host's root file system, as mounted here")
	flags.StringVar(&driver.DriverRoot, "driver-root", labels.DriverRoot, "the driver's root file system, as mounted here")
	flags.StringVar(&driver.InstallDir, "driver-install-dir", labels.DriverRoot, "the driver's root file system, on the host")
	flags.BoolVar(&driver.ContainerExpected, "driver-container", false,
		"a driver container runs on this node: wait for it unless the host has a driver that works")
	flags.StringVar(&driver.SysRoot, "sys-root", "/sys", "sysfs, as mounted here")
	flags.StringVar(&driver.ProcRoot, "proc-root", "/proc", "procfs, as mounted here")
	flags.BoolVar(&driver.SkipGPUInit, "skip-gpu-init", false,
		"leave the GPUs alone: run nvidia-smi --version only, and look at no module and no device node")
}

// stageNames are those of all stages, in their order.
func stageNames() []string {
	var names []string
	for _, stage := range export.DefaultStages {
		names = append(names, string(stage))
	}
	return names
}

// stagesNamed returns the stages with these names, in their order.
func stagesNamed(names []string) ([]labels.Marker, error) {
	for _, name := range names {
		if !slices.Contains(stageNames(), name) {
			return nil, fmt.Errorf("there is no stage %q; use --stages with some of %q", name, export.DefaultStages)
		}
	}
	return slices.DeleteFunc(slices.Clone(export.DefaultStages), func(stage labels.Marker) bool {
		return !slices.Contains(names, string(stage))
	}), nil
}
