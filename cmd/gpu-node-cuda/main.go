package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/cuda"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nvml"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nvmlread"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
)

// nvmlCommand is the first argument for a session with NVML.
const nvmlCommand = "nvml"

func main() {
	if len(os.Args) > 1 && os.Args[1] == nvmlCommand {
		if err := readNVML(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitFailure)
		}
		return
	}
	library := flag.String("library", cuda.Library, "the CUDA library: a soname, or the path of a file")
	printVersion := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *printVersion {
		fmt.Println("gpu-node-cuda version", version.Version)
		return
	}
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "gpu-node-cuda: it takes no arguments, but got %q (see gpu-node-cuda --help)\n", flag.Args())
		os.Exit(exitUsage)
	}
	if err := cuda.Validate(*library, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitFailure)
	}
}

// readNVML has one session with NVML, about the GPUs whose PCI addresses are the arguments, and writes what it finds to
// stdout, in JSON. What the library fails with is part of that. It is a command of the health agent, not of people.
func readNVML(args []string) error {
	flags := flag.NewFlagSet("gpu-node-cuda "+nvmlCommand, flag.ExitOnError)
	library := flags.String("library", nvml.Library, "NVML: a soname, or the path of a file")
	root := flags.String("root", "/", "the driver's root file system, in which the library is opened")
	// It exits if they are wrong.
	_ = flags.Parse(args)
	if *root != "/" {
		again := append([]string{os.Args[0], nvmlCommand, "--library=" + *library}, flags.Args()...)
		return nvmlread.Enter(*root, again)
	}
	if err := json.NewEncoder(os.Stdout).Encode(nvmlread.Session(*library, flags.Args())); err != nil {
		return fmt.Errorf("write the state of the GPUs: %w", err)
	}
	return nil
}
