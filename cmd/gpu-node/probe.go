package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/probe"
)

func probeCommand() *cobra.Command {
	var driver probe.Driver
	command := &cobra.Command{
		Use:   labels.ProbeCommand,
		Short: "Probe whether the driver container that this runs in has started",
		Long: `Probe whether the driver container that this runs in has started: its kernel module is loaded, its
daemons are up and nvidia-smi works. Then write ` + labels.DriverContainerReady + ` next to the markers, for
gpu-node validate.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			driver.Pod = os.Getenv(podUIDEnv)
			if driver.Pod == "" {
				return failure{errNoPod}
			}
			if err := driver.Run(command.Context()); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	command.Flags().StringVar(&driver.Dir, "dir", labels.ValidationsDir, "directory of the markers; need not exist yet")
	command.Flags().DurationVar(&driver.Within, "within", 0,
		"how long to wait for the module and the daemons before failing")
	command.Flags().StringVar(&driver.SysRoot, "sys-root", "/sys", "sysfs, as mounted here")
	return command
}
