// Package app is the command line of the manager. What is given by its caller are the waits of what runs in it.
package app

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/version"
)

// Environment of the manager.
const (
	envNamespace = "OPERATOR_NAMESPACE"
	envImage     = "OPERATOR_IMAGE"
)

// Main runs the command line of this process with these waits, until it is done or a signal ends it. After an error it
// exits with code 1 and writes the error to standard error.
func Main(timing Timing) {
	if err := command(timing).ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "gpu-operator:", err)
		os.Exit(1)
	}
}

func command(timing Timing) *cobra.Command {
	o := options{timing: timing}
	cmd := &cobra.Command{
		Use:   "gpu-operator",
		Short: "Makes the GPU nodes of a cluster ready, as its ClusterPolicy says",
		Long: `Makes the GPU nodes of a cluster ready, as its ClusterPolicy says.

It finds the cluster by --kubeconfig, KUBECONFIG or the pod it runs in, and reads two variables:
  OPERATOR_NAMESPACE  the namespace of the operator and of everything it runs; required
  OPERATOR_IMAGE      the image that it runs from, used for the helpers in the operands' pods`,
		Version:       version.Version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.namespace = os.Getenv(envNamespace)
			o.image = os.Getenv(envImage)
			if o.image == "" {
				o.image = image.Own()
			}
			return run(cmd.Context(), o)
		},
	}
	cmd.AddCommand(printCRDCommand(), applyCRDsCommand(), checkReadyCommand())
	flags := cmd.Flags()
	o.metrics.addFlags(flags)
	flags.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 turns them off")
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "work only while holding the lease, so that several may run")
	flags.BoolVar(&o.debug, "debug", false, "log decisions too, not only changes")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "path of the kubeconfig; default KUBECONFIG, or the pod's own account")
	return cmd
}
