package main

import (
	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/validate"
)

func validateCUDA() *cobra.Command {
	var validation validation
	cuda := validate.CUDA{Log: newLog()}
	command := &cobra.Command{
		Use:   "cuda",
		Short: "Run a kernel on every GPU that the container runtime injects into this container",
		Long: `Run a kernel on every GPU and MIG device that the container runtime injects into this container, and
check the result. A GPU that other processes occupy, by its memory or by its compute mode, passes: it
works for them.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return validation.run(labels.MarkerCUDA, func() (validate.Check, error) { return cuda.Check, nil })
		},
	}
	validation.register(command.Flags())
	command.Flags().StringVar(&cuda.Program, "program", labels.CUDABinary,
		"gpu-node-cuda, which runs the kernel and is linked to the C library")
	return command
}
