// Package validate proves that a part of the GPU stack works on this node, again and again until it
// does, and then writes the marker for which the containers of other operands wait. It is the only
// writer of the markers in labels.ValidationsDir.
//
// run.go is the loop that all components share. A driver is proven step by step: driver.go finds it and
// tells the steps, smi.go runs nvidia-smi and puts its exit codes into words, gpus.go reads what it
// prints, kernel.go reads sysfs and procfs, devices.go looks at the device nodes, devchar.go makes the
// links in /dev/char, container.go is about the driver container and its further modules, and wsl.go
// about a guest of Windows. module.go, toolkit.go, cuda.go and plugin.go are the other components;
// workload.go is the pod that plugin.go starts where asked for, and verdict.go judges it.
package validate
