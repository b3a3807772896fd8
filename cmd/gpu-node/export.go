package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/export"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
)

// exportVariables are the variables of NVIDIA's exporter and, for the check of the driver, of its validator.
var exportVariables = variables{"node-name": "NODE_NAME", "port": "METRICS_PORT", "skip-gpu-init": skipGPUInitEnv}

// exporter has the flags of export.
type exporter struct {
	node              node
	nodeName          string
	serviceAccountDir string
	port              int
	markers           []string
	driver            validate.Driver
}

func exportCommand() *cobra.Command {
	var exporter exporter
	command := &cobra.Command{
		Use:   "export",
		Short: "Serve metrics of the GPU stack on this node (needs a privileged container)",
		Long: `Serve metrics of the GPU stack on this node at /metrics until SIGTERM: those of NVIDIA's node status
exporter, and how long each validation took. The driver is checked every minute, as validate driver does,
which needs the same mounts and privileges.

Environment variables, overridden by the flags:
  NODE_NAME                             as --node-name
  METRICS_PORT                          as --port
  ` + skipGPUInitEnv + `=true  as --skip-gpu-init`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := exporter.complete(command.Flags()); err != nil {
				return err
			}
			validated, err := export.MarkersNamed(exporter.markers)
			if err != nil {
				return fmt.Errorf("%w; use --markers with some of %q", err, export.DefaultMarkers)
			}
			return exporter.node.run(func(ctx context.Context, markers marker.Dir, log *slog.Logger) error {
				return exporter.serve(ctx, validated, markers, log)
			})
		},
	}
	exporter.register(command.Flags())
	return command
}

func (e *exporter) register(flags *pflag.FlagSet) {
	e.node.register(flags)
	flags.StringVar(&e.nodeName, "node-name", "", "name of the node, the label of all metrics")
	flags.StringVar(&e.serviceAccountDir, "service-account-dir", nodeapi.ServiceAccountDir,
		"directory of the pod's token and the API server's CA certificate")
	flags.IntVar(&e.port, "port", export.DefaultPort, "port of /metrics and /healthz; 0 for any free port")
	flags.StringSliceVar(&e.markers, "markers", export.MarkerNames(), "the markers that are written on this node")
	registerDriver(flags, &e.driver)
}

// complete sets flags that are not given from the environment, and validates all.
func (e *exporter) complete(flags *pflag.FlagSet) error {
	if err := exportVariables.apply(flags); err != nil {
		return err
	}
	if e.nodeName == "" {
		return errNoNode
	}
	return checkPort(e.port)
}

func checkPort(port int) error {
	if port < 0 || port > 65535 {
		return fmt.Errorf("invalid port %d; set --port or METRICS_PORT to one from 1 to 65535", port)
	}
	return nil
}

func (e *exporter) serve(ctx context.Context, validated []labels.Marker, markers marker.Dir, log *slog.Logger) error {
	e.driver.MarkersDir, e.driver.Run = markers.Path, validate.Chroot
	exporter := export.New(export.Options{
		Node: e.nodeName, Markers: markers, Validated: validated, SysRoot: e.driver.SysRoot,
		CheckDriver: e.driver.Check, DriverInterval: export.DefaultDriverInterval, DriverTimeout: export.DefaultDriverTimeout,
		Resources: nodeapi.ResourcesReader(e.serviceAccountDir, e.nodeName),
		Log:       log,
	})
	go exporter.Run(ctx)
	return export.Serve(ctx, e.port, exporter, log)
}
