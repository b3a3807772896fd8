package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
)

// skipGPUInitEnv is the variable of --skip-gpu-init.
const skipGPUInitEnv = "DRIVER_VALIDATION_SKIP_GPU_INIT"

// variables are the environment variables that users set in spec.validator.COMPONENT.env, by their flag. The names are
// those of NVIDIA's validator where it has the same setting.
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
		validation validation
		driver     validate.Driver
		noLinks    bool
		copies     string
		follows    bool
	)
	env := variables{"no-dev-char-links": validate.DisableLinksEnv, "skip-gpu-init": skipGPUInitEnv}
	command := &cobra.Command{
		Use:   "driver",
		Short: "Validate the driver of the host or of the driver container (needs a privileged container)",
		Long: `Validate the driver of the host or, if that has none that works, of the driver container: nvidia-smi
reaches every GPU, the kernel modules are of its version, and the device nodes exist. Create the links to them
in the host's /dev/char. If the driver container reports that it loads nvidia_fs, gdrdrv or nvidia_peermem,
wait for these too, and write their markers.

Environment variables, overridden by the flags:
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
			driver.MarkersDir, driver.Run = validation.node.dir, validate.Chroot
			validation.companions = driver.Companions()
			check := driver.Check
			if follows {
				validation.companions = append(validation.companions, validate.StaleRuntime)
				check = validate.WithRuntime(check)
			}
			return validation.run(labels.MarkerDriver, func() (validate.Check, error) { return check, copyTo(copies) })
		},
	}
	flags := command.Flags()
	validation.register(flags)
	registerDriver(flags, &driver)
	registerCopy(flags, &copies)
	flags.StringVar(&driver.DevChar, "dev-char", labels.DevCharMount, "the host's /dev/char, as mounted here")
	flags.BoolVar(&follows, "runtime-follows", false,
		"the toolkit of this pod restarts the container runtime: note this in the marker, and remove the marker of an "+
			"earlier restart")
	flags.BoolVar(&noLinks, "no-dev-char-links", false, "create no links in the host's /dev/char")
	return command
}

// registerDriver registers the flags with the places of the driver and of the kernel's file systems.
func registerDriver(flags *pflag.FlagSet, driver *validate.Driver) {
	flags.StringVar(&driver.HostRoot, "host-root", labels.HostRootMount, "the host's root file system, as mounted here")
	flags.StringVar(&driver.RootFS, "root-fs", "/", "the host's root file system, on the host")
	flags.StringVar(&driver.DriverRoot, "driver-root", labels.DriverRoot, "the driver's root file system, as mounted here")
	flags.StringVar(&driver.InstallDir, "driver-install-dir", labels.DriverRoot,
		"the driver's root file system, on the host")
	flags.BoolVar(&driver.ContainerExpected, "driver-container", false,
		"a driver container runs on this node: wait for it unless the host has a working driver")
	flags.StringVar(&driver.SysRoot, "sys-root", "/sys", "sysfs, as mounted here")
	flags.StringVar(&driver.ProcRoot, "proc-root", "/proc", "procfs, as mounted here")
	flags.BoolVar(&driver.SkipGPUInit, "skip-gpu-init", false,
		"leave the GPUs alone: run nvidia-smi --version only, and check no module and no device node")
}

func validateMOFED() *cobra.Command {
	var (
		validation validation
		mofed      validate.MOFED
	)
	env := variables{"rdma": labels.RDMAEnabledKey, "host-mofed": labels.HostMOFEDKey}
	command := &cobra.Command{
		Use:   "mofed",
		Short: "Validate the Mellanox driver of the host or of NVIDIA's network operator",
		Long: `Validate the Mellanox driver of the host or of NVIDIA's network operator. If GPUDirect RDMA is not
enabled, or the node has no Mellanox network adapter, it is not needed, and this succeeds immediately.

Environment variables, overridden by the flags:
  ` + labels.RDMAEnabledKey + `=true  as --rdma
  ` + labels.HostMOFEDKey + `=true           as --host-mofed`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := env.apply(command.Flags()); err != nil {
				return err
			}
			mofed.Log = newLog()
			return validation.run(labels.MarkerMOFED, func() (validate.Check, error) { return mofed.Check, nil })
		},
	}
	flags := command.Flags()
	validation.register(flags)
	flags.BoolVar(&mofed.RDMA, "rdma", false, "GPUDirect RDMA is enabled")
	flags.BoolVar(&mofed.OnHost, "host-mofed", false, "the host has the Mellanox driver")
	flags.StringVar(&mofed.ReadyFile, "mofed-ready-file", labels.MOFEDReady,
		"file that the pod of NVIDIA's network operator writes once the Mellanox driver is loaded")
	flags.StringVar(&mofed.SysRoot, "sys-root", "/sys", "sysfs, as mounted here")
	return command
}

// validateModule returns the command of a component that is one kernel module.
func validateModule(component labels.Marker) *cobra.Command {
	var (
		validation validation
		sysRoot    string
	)
	command := &cobra.Command{
		Use:   string(component),
		Short: "Require the kernel module of " + string(component),
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return validation.run(component, func() (validate.Check, error) { return validate.Module(component, sysRoot), nil })
		},
	}
	validation.register(command.Flags())
	command.Flags().StringVar(&sysRoot, "sys-root", "/sys", "sysfs, as mounted here")
	return command
}
