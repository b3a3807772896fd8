package main

import (
	"fmt"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/pluginlink"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/termination"
)

// fallbackEmpty is the strategy for a node without a label and a default: an empty configuration.
const fallbackEmpty = "empty"

// configuration has the flags of gpu-node configure.
type configuration struct {
	pluginlink.Link
	once, sends       bool
	process           string
	signal            int
	fallbacks         string
	serviceAccountDir string
	terminationLog    string
}

// configureVariables are the variables of config-manager of NVIDIA's device plugin.
var configureVariables = variables{
	"once": "ONESHOT", "node-name": "NODE_NAME", "node-label": "NODE_LABEL", "configs-dir": "CONFIG_FILE_SRCDIR",
	"file": "CONFIG_FILE_DST", "default": "DEFAULT_CONFIG", "fallback-strategies": "FALLBACK_STRATEGIES",
	"send-signal": "SEND_SIGNAL", "signal": "SIGNAL", "process": "PROCESS_TO_SIGNAL",
}

func (c *configuration) register(flags *pflag.FlagSet) {
	flags.BoolVar(&c.once, "once", false, "link the configuration and exit")
	flags.StringVar(&c.Node, "node-name", "", "name of the node")
	flags.StringVar(&c.Label, "node-label", labels.DevicePluginConfig,
		"label of the node whose value is the name of a configuration")
	flags.StringVar(&c.Dir, "configs-dir", "", "directory with one file for each configuration")
	flags.StringVar(&c.File, "file", "", "link to the configuration of the node")
	flags.StringVar(&c.Default, "default", "", "configuration of a node without the label; none is an empty one")
	flags.StringVar(&c.fallbacks, "fallback-strategies", fallbackEmpty,
		"what a node without the label gets if there is no default; only "+fallbackEmpty)
	flags.BoolVar(&c.sends, "send-signal", true, "signal the processes that read the configuration when it changes")
	flags.IntVar(&c.signal, "signal", int(syscall.SIGHUP), "number of the signal")
	flags.StringVar(&c.process, "process", "nvidia-device-plugin", "argv[0] of these processes")
	flags.StringVar(&c.ProcRoot, "proc-root", "/proc", "where procfs is mounted")
	flags.DurationVar(&c.Patience, "patience", pluginlink.DefaultPatience,
		"how long --once tries to read the node before it fails, with a unit (1m)")
	flags.StringVar(&c.serviceAccountDir, "service-account-dir", nodeapi.ServiceAccountDir,
		"directory of the pod's token and the API server's CA certificate")
	registerTerminationLog(flags, &c.terminationLog)
}

func configureCommand() *cobra.Command {
	var c configuration
	command := &cobra.Command{
		Use:   labels.ConfigureCommand,
		Short: "Link the device plugin's configuration that a label of the node selects, and keep the link current",
		Long: `Link the device plugin's configuration that a label of the node selects, and keep the link current until
SIGTERM. When it changes, signal the processes that read it and see the same volume.

While the node cannot be read, an earlier link stays.

Environment variables, those of config-manager of NVIDIA's device plugin, overridden by the flags:
  ONESHOT=true         as --once
  NODE_NAME            as --node-name
  NODE_LABEL           as --node-label
  CONFIG_FILE_SRCDIR   as --configs-dir
  CONFIG_FILE_DST      as --file
  DEFAULT_CONFIG       as --default
  FALLBACK_STRATEGIES  as --fallback-strategies
  SEND_SIGNAL          as --send-signal
  SIGNAL               as --signal
  PROCESS_TO_SIGNAL    as --process`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := c.complete(command.Flags()); err != nil {
				return err
			}
			return fail(c.run(), c.terminationLog)
		},
	}
	c.register(command.Flags())
	return command
}

// complete sets flags that are not given from the environment, and validates all.
func (c *configuration) complete(flags *pflag.FlagSet) error {
	if err := configureVariables.apply(flags); err != nil {
		return err
	}
	if c.Node == "" {
		return errNoNode
	}
	for _, flag := range []string{"configs-dir", "file", "node-label"} {
		if flags.Lookup(flag).Value.String() == "" {
			return fmt.Errorf("--%s or the environment variable %s must be set", flag, configureVariables[flag])
		}
	}
	if c.fallbacks != fallbackEmpty {
		return fmt.Errorf("--fallback-strategies or the environment variable FALLBACK_STRATEGIES is %q; only %q is supported",
			c.fallbacks, fallbackEmpty)
	}
	if c.sends {
		c.Process, c.Signal = c.process, syscall.Signal(c.signal)
	}
	return nil
}

func (c *configuration) run() error {
	ctx, stop := termination.Context()
	defer stop()
	client, err := nodeapi.InCluster(c.serviceAccountDir)
	if err != nil {
		return fmt.Errorf("the configuration of the node is not known: %w", err)
	}
	c.API, c.Log = client, newLog()
	if c.once {
		return c.Once(ctx)
	}
	return c.Follow(ctx)
}
