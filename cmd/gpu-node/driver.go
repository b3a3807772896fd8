package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/marker"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
)

// skipGPUInitEnv is the variable of --skip-gpu-init.
const skipGPUInitEnv = "DRIVER_VALIDATION_SKIP_GPU_INIT"

// variables are those that users set in spec.validator.COMPONENT.env, by the flag that they stand for.
// The names are those of NVIDIA's validator where it has such a setting.
type variables map[string]string

// apply sets the flags that are not given from their variables; an empty one counts as unset.
func (v variables) apply(flags *pflag.FlagSet) error {
	for flag, variable := range v {
		value := os.Getenv(variable)
		if value == "" || flags.Changed(flag) {
			continue
		}
		if err := flags.Set(flag, value); err != nil {
			return fmt.Errorf("the environment variable %s: %w", variable, err)
		}
	}
	return nil
}

func validateDriver() *cobra.Command {
	var (
		prover  prover
		driver  validate.Driver
		noLinks bool
		copies  string
		follows bool
	)
	env := variables{"no-dev-char-links": validate.DisableLinksEnv, "skip-gpu-init": skipGPUInitEnv}
	command := &cobra.Command{
		Use:   "driver",
		Short: "Prove the driver of the host or of the driver container (needs a privileged container)",
		Long: `Prove the driver of the host or, where that has none that works, of the driver container: nvidia-smi
reaches every GPU, the kernel modules fit it, and the device nodes are there. Make the links to them in
the host's /dev/char. Where the driver container says that it loads nvidia_fs, gdrdrv or nvidia_peermem,
wait for these too, and write their markers.

Environment variables, over which the flags win:
  ` + validate.DisableLinksEnv + `=true  as --no-dev-char-links
  ` + skipGPUInitEnv + `=true    as --skip-gpu-init`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := env.apply(command.Flags()); err != nil {
				return err
			}
			if noLinks {
				driver.DevChar = ""
			}
			driver.MarkersDir, driver.Run = prover.node.dir, validate.Chroot
			prover.companions = driver.Companions()
			check := driver.Check
			if follows {
				prover.companions = append(prover.companions, runtimeOfBefore)
				check = withRuntime(check)
			}
			return prover.prove(labels.MarkerDriver, func() (validate.Check, error) { return check, copyTo(copies) })
		},
	}
	flags := command.Flags()
	prover.register(flags)
	registerDriver(flags, &driver)
	registerCopy(flags, &copies)
	flags.StringVar(&driver.DevChar, "dev-char", labels.DevCharMount, "the host's /dev/char, as mounted here")
	flags.BoolVar(&follows, "runtime-follows", false,
		"the toolkit of this pod has the container runtime restart: say so in the marker, and remove the one that says "+
			"that it has")
	flags.BoolVar(&noLinks, "no-dev-char-links", false, "make no links in the host's /dev/char")
	return command
}

// runtimeOfBefore is a marker that goes with the driver's, and that the toolkit's probe writes.
var runtimeOfBefore = validate.Companion{
	Marker: labels.MarkerRuntime,
	Check:  func([]marker.Assignment) (bool, error) { return false, nil },
}

// withRuntime adds to what a check finds that the container runtime restarts after it.
func withRuntime(check validate.Check) validate.Check {
	return func(ctx context.Context) ([]marker.Assignment, error) {
		found, err := check(ctx)
		return append(found, runtimeFollows), err
	}
}

// registerDriver registers the flags that say where the driver is and where the kernel tells of it.
func registerDriver(flags *pflag.FlagSet, driver *validate.Driver) {
	flags.StringVar(&driver.HostRoot, "host-root", labels.HostRootMount, "the host's root file system, as mounted here")
	flags.StringVar(&driver.DriverRoot, "driver-root", labels.DriverRoot, "the driver's root file system, as mounted here")
	flags.StringVar(&driver.InstallDir, "driver-install-dir", labels.DriverRoot,
		"the driver's root file system, on the host")
	flags.BoolVar(&driver.ContainerExpected, "driver-container", false,
		"a driver container runs on this node: wait for it unless the host has a driver that works")
	flags.StringVar(&driver.SysRoot, "sys-root", "/sys", "sysfs, as mounted here")
	flags.StringVar(&driver.ProcRoot, "proc-root", "/proc", "procfs, as mounted here")
	flags.BoolVar(&driver.SkipGPUInit, "skip-gpu-init", false,
		"leave the GPUs alone: run nvidia-smi --version only, and look at no module and no device node")
}

func validateMOFED() *cobra.Command {
	var (
		prover prover
		mofed  validate.MOFED
	)
	env := variables{"rdma": labels.RDMAEnabledKey, "host-mofed": "USE_HOST_MOFED"}
	command := &cobra.Command{
		Use:   "mofed",
		Short: "Prove the Mellanox driver of the host or of NVIDIA's network operator",
		Long: `Prove the Mellanox driver of the host or of NVIDIA's network operator. Where GPUDirect RDMA is not
enabled, or the node has no network adapter of Mellanox, it is not needed, and this succeeds at once.

Environment variables, over which the flags win:
  ` + labels.RDMAEnabledKey + `=true  as --rdma
  USE_HOST_MOFED=true           as --host-mofed`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := env.apply(command.Flags()); err != nil {
				return err
			}
			mofed.Log = newLog()
			return prover.prove(labels.MarkerMOFED, func() (validate.Check, error) { return mofed.Check, nil })
		},
	}
	flags := command.Flags()
	prover.register(flags)
	flags.BoolVar(&mofed.RDMA, "rdma", false, "GPUDirect RDMA is enabled")
	flags.BoolVar(&mofed.OnHost, "host-mofed", false, "the host has the Mellanox driver")
	flags.StringVar(&mofed.ReadyFile, "mofed-ready-file", labels.MOFEDReady,
		"file by which the pod of NVIDIA's network operator tells that the Mellanox driver is loaded")
	flags.StringVar(&mofed.SysRoot, "sys-root", "/sys", "sysfs, as mounted here")
	return command
}

// validateModule is the command of a component that is one kernel module.
func validateModule(component labels.Marker) *cobra.Command {
	var (
		prover  prover
		sysRoot string
	)
	command := &cobra.Command{
		Use:   string(component),
		Short: "Require the kernel module of " + string(component),
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return prover.prove(component, func() (validate.Check, error) { return validate.Module(component, sysRoot), nil })
		},
	}
	prover.register(command.Flags())
	command.Flags().StringVar(&sysRoot, "sys-root", "/sys", "sysfs, as mounted here")
	return command
}
