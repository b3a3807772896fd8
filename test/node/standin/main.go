//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// parts are what this program plays, by the name under which it is started.
var parts = map[string]func(args []string) error{
	// The machine's.
	"runc":          runWithHardware,
	"show-hardware": showHardware,
	"cat":           concatenate,
	"load-driver":   func([]string) error { return loadHostDriver() },
	"kubelet":       kubelet,
	"prepare-claim": prepareClaim,
	"pause":         func([]string) error { return untilEnd() },
	"echo":          echo,

	// NVIDIA's.
	"nvidia-driver":                   driver,
	"driver-manager":                  manageDriver,
	"nvidia-smi":                      smi,
	"nvidia-toolkit":                  toolkit,
	"nvidia-container-runtime":        runWithGPUs,
	"nvidia-container-runtime.cdi":    runWithGPUs,
	"nvidia-container-runtime.legacy": runWithGPUs,
	"nvidia-device-plugin":            plugin,
	"mps-control-daemon":              controlDaemon,
	"nvidia-cuda-mps-control":         mpsControl,
	"gpu-feature-discovery":           discoverFeatures,
	"nvidia-mig-manager":              managePartitions,
	"nvidia-mig-parted":               withModules("/usr/bin/nvidia-mig-parted"),
	"dcgm-exporter":                   exportMetrics,
	"nv-hostengine":                   serveEngine,

	// A user's.
	"mps-client": useGPU,

	// The shell's, before the driver's container ends.
	"rm": remove,
}

func main() {
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".real")
	play, known := parts[name]
	if !known {
		fmt.Fprintf(os.Stderr, "unknown part %q; start this program by the name of the part that it is to play\n", name)
		os.Exit(2)
	}
	if err := follow(name); err != nil {
		end(err)
	}
	if err := play(os.Args[1:]); err != nil {
		end(err)
	}
}

// terminationLog is where a container writes why it ends.
const terminationLog = "/dev/termination-log"

// failure is an error with an exit code.
type failure struct {
	error
	code int
}

// end fails with a message.
func end(err error) {
	fmt.Fprintln(os.Stderr, err)
	if file, openErr := os.OpenFile(terminationLog, os.O_WRONLY|os.O_TRUNC, 0); openErr == nil {
		_, _ = file.WriteString(err.Error())
	}
	var known failure
	if errors.As(err, &known) && known.code != 0 {
		os.Exit(known.code)
	}
	os.Exit(1)
}

// untilEnd waits until the container is stopped.
func untilEnd() error {
	<-ended()
	return nil
}

func ended() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	return signals
}

func echo(args []string) error {
	fmt.Println(strings.Join(args, " "))
	return nil
}

// withoutFlags returns the arguments that are paths.
func withoutFlags(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return strings.HasPrefix(arg, "-") })
}

func remove(args []string) error {
	for _, path := range withoutFlags(args) {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}
