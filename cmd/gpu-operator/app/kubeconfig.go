package app

import (
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/policy/undecodable"
)

const flagKubeconfig = "kubeconfig"

// addKubeconfig adds the flag whose value restConfig takes.
func addKubeconfig(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, flagKubeconfig, "", "path of the kubeconfig (default: KUBECONFIG, or the pod's ServiceAccount)")
}

// onCluster makes a command run on the cluster of its flag for a kubeconfig.
func onCluster(cmd *cobra.Command, run func(config *rest.Config, args []string) error) *cobra.Command {
	kubeconfig := ""
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		ctrl.SetLogger((&logOptions{}).logger())
		config, err := restConfig(kubeconfig)
		if err != nil {
			return err
		}
		return run(config, args)
	}
	addKubeconfig(cmd.Flags(), &kubeconfig)
	return cmd
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
	bypassProxy(config, os.Getenv)
	kinds, err := undecodable.CustomKinds()
	if err != nil {
		return nil, err
	}
	config.Wrap(kinds.Wrap)
	return config, nil
}

// bypassProxy has the API server that the kubelet names in the variables called directly, whatever NO_PROXY has: a
// proxy for the internet cannot reach it. A proxy that a kubeconfig names stays. Without a proxy in the variables the
// configuration is left alone, as clients share their connections only without a function in it.
func bypassProxy(config *rest.Config, variable func(name string) string) {
	host, port := variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT")
	isProxied := variable("HTTPS_PROXY") != "" || variable("https_proxy") != ""
	if config.Proxy == nil && isProxied && config.Host == "https://"+net.JoinHostPort(host, port) {
		config.Proxy = http.ProxyURL(nil)
	}
}

// policyClient returns a client that reads, watches and writes ClusterPolicies.
func policyClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering ClusterPolicy: %w", err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return c, nil
}
