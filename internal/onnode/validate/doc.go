// Package validate validates a part of the GPU stack on this node, with retries, and then writes the marker for which
// the containers of other operands wait. The markers of what is probed alone are written by package probe.
//
// run.go is the loop that all components share. A driver is validated in parts: driver.go finds it and has the order,
// smi.go runs nvidia-smi and explains its exit codes, gpus.go parses its output, kernel.go reads sysfs and procfs,
// devices.go checks the device nodes, devchar.go creates the links in /dev/char, container.go is about the driver
// container and its further modules, and wsl.go about WSL. module.go, toolkit.go, cuda.go and plugin.go are the other
// components; testpod.go is the test pod that plugin.go starts if configured, and outcome.go evaluates it. progress.go
// tracks since when a component is being validated.
package validate
