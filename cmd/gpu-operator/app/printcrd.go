package app

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/config/crd"
)

// printCRDCommand prints the definitions that the operator needs, so that a cluster can get those that match the
// running image.
func printCRDCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "print-crd",
		Short: "Print the CustomResourceDefinitions of this release",
		Example: "  kubectl -n gpu-operator exec deploy/gpu-operator -- /gpu-operator print-crd | kubectl apply " +
			"--server-side --force-conflicts -f -",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, definition := range crd.All() {
				if _, err := cmd.OutOrStdout().Write(definition.Text); err != nil {
					return fmt.Errorf("printing the definition %s: %w", definition.Name, err)
				}
			}
			return nil
		},
	}
}
