// Package app is the command line of the manager. The caller provides the timing of its controllers.
package app

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Environment of the manager, beside the images and operand.ProxyVariables.
const (
	envNamespace = "OPERATOR_NAMESPACE"
	envImage     = "OPERATOR_IMAGE"
)

// Main runs the command line of this process with this timing, until it is done or receives a signal. On an error it
// writes the error to standard error and exits with code 1.
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
		Short: "Makes the GPU nodes of a cluster ready, as its ClusterPolicy specifies",
		Long: `Makes the GPU nodes of a cluster ready, as its ClusterPolicy specifies.

It finds the cluster by --kubeconfig, KUBECONFIG or its pod, in this order, and reads these environment variables:
  OPERATOR_NAMESPACE  the namespace of the operator and its operands; required
  OPERATOR_IMAGE      the operator's own image, which the helper containers of the operands use;
                      required
  DRIVER_IMAGE, CONTAINER_TOOLKIT_IMAGE, DEVICE_PLUGIN_IMAGE and so on
                      the default images of the operands; docs/install.md lists them
  HTTP_PROXY, HTTPS_PROXY, NO_PROXY  also the proxy of the driver, unless spec.global.proxy names one`,
		Version:       version.Version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.namespace = os.Getenv(envNamespace)
			o.image = os.Getenv(envImage)
			o.proxy = operand.ProxyFromVariables(os.Getenv)
			return run(cmd.Context(), o)
		},
	}
	cmd.AddCommand(printCRDCommand(), applyCRDsCommand(), deleteCRDsCommand(), checkReadyCommand(), uninstallCommand())
	flags := cmd.Flags()
	o.metrics.addFlags(flags)
	flags.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081",
		"address of /healthz and /readyz; 0 disables them")
	o.election.addFlags(flags)
	o.log.addFlags(flags)
	flags.BoolVar(&o.takeOver, "take-over", false,
		"work even while NVIDIA's operator runs in the cluster; by default nothing is changed until it is gone")
	addKubeconfig(flags, &o.kubeconfig)
	return cmd
}
