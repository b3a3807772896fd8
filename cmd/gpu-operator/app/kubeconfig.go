package app

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpolicy/gpu-operator/internal/version"
)

const flagKubeconfig = "kubeconfig"

// addKubeconfig adds the flag whose value restConfig takes.
func addKubeconfig(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, flagKubeconfig, "", "path of the kubeconfig (default: KUBECONFIG, or the pod's ServiceAccount)")
}

// restConfig returns how to reach the cluster: by the kubeconfig at path, or if that is empty by KUBECONFIG or the
// ServiceAccount of the pod.
func restConfig(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w: set --%s or KUBECONFIG, or run in a pod", err, flagKubeconfig)
	}
	// API Priority and Fairness limits the operator on the server; a client-side limit would only delay a thousand
	// nodes.
	config.QPS = -1
	config.UserAgent = "gpu-operator/" + version.Version
	return config, nil
}
