package app

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/config/crd"
)

// printCRDCommand prints the definition that the operator needs, so that a cluster can get the one that matches the
// running image.
func printCRDCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "print-crd",
		Short: "Print the CustomResourceDefinition of this release",
		Example: "  kubectl -n gpu-operator exec deploy/gpu-operator -- /gpu-operator print-crd | kubectl apply " +
			"--server-side --force-conflicts -f -",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := cmd.OutOrStdout().Write(crd.ClusterPolicy); err != nil {
				return fmt.Errorf("printing the definition: %w", err)
			}
			return nil
		},
	}
}
