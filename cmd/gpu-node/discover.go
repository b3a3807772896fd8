package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/discover"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/termination"
)

// discovery has the flags of gpu-node discover.
type discovery struct {
	discover.Discovery
	mode              string
	once              bool
	featuresDir       string
	serviceAccountDir string
	terminationLog    string
}

// discoverVariables are the variables of discover.
var discoverVariables = variables{"node-name": "NODE_NAME"}

func (d *discovery) register(flags *pflag.FlagSet) {
	flags.StringVar(&d.mode, "mode", string(discover.ModeAuto),
		"auto leaves the labels that Node Feature Discovery lists to it, builtin ignores it")
	flags.BoolVar(&d.once, "once", false, "label the node and exit")
	flags.StringVar(&d.Node, "node-name", "", "name of the node")
	flags.StringVar(&d.Host.SysRoot, "sys-root", "/sys", "where sysfs is mounted")
	flags.StringVar(&d.Host.ProcRoot, "proc-root", "/proc", "where procfs is mounted")
	flags.StringVar(&d.Host.Root, "host-root", labels.HostRootMount,
		"the host's root file system, of which /usr/lib is mounted here")
	flags.StringVar(&d.featuresDir, "features-dir", labels.FeaturesDir,
		"directory of GPU Feature Discovery's file "+labels.FeaturesFile+"; need not exist yet")
	flags.DurationVar(&d.Resync, "resync", discover.DefaultResync,
		"how often the Node is compared when nothing has changed, with a unit (5m)")
	flags.DurationVar(&d.KeepMissing, "keep-missing", discover.DefaultKeepMissing,
		"how long labels of GPU Feature Discovery outlive its file, with a unit (10m)")
	flags.StringVar(&d.serviceAccountDir, "service-account-dir", nodeapi.ServiceAccountDir,
		"directory of the pod's token and the API server's CA certificate")
	registerTerminationLog(flags, &d.terminationLog)
}

func discoverCommand() *cobra.Command {
	var d discovery
	command := &cobra.Command{
		Use:   "discover",
		Short: "Label the node with its GPUs, its kernel and its operating system, and keep the labels current",
		Long: `Label the node with its GPUs, its kernel, its operating system and the labels of GPU Feature
Discovery, under the keys of Node Feature Discovery, and keep the labels current until SIGTERM.

Environment variables, overridden by the flag:
  NODE_NAME  as --node-name`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := d.complete(command.Flags()); err != nil {
				return err
			}
			return fail(d.run(), d.terminationLog)
		},
	}
	d.register(command.Flags())
	return command
}

// complete sets flags that are not given from the environment, and validates all.
func (d *discovery) complete(flags *pflag.FlagSet) (err error) {
	if err := discoverVariables.apply(flags); err != nil {
		return err
	}
	if d.Mode, err = discover.ParseMode(d.mode); err != nil {
		return err
	}
	if d.Node == "" {
		return errNoNode
	}
	if d.Resync <= 0 || d.KeepMissing < 0 {
		return errors.New("--resync must be above 0s, and --keep-missing must not be negative")
	}
	return nil
}

func (d *discovery) run() error {
	ctx, stop := termination.Context()
	defer stop()
	client, err := nodeapi.InCluster(d.serviceAccountDir)
	if err != nil {
		return fmt.Errorf("node %s is not labelled: %w", d.Node, err)
	}
	d.Client, d.Log = client, newLog()
	d.Features = filepath.Join(d.featuresDir, labels.FeaturesFile)
	if d.once {
		return d.Once(ctx)
	}
	d.Run(ctx)
	return nil
}
