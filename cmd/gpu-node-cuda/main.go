package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/cuda"
	"github.com/clusterpolicy/gpu-operator/internal/version"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
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
