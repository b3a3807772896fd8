package app

import (
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/clusterpolicy/gpu-operator/internal/version"
)

// tellServer logs that the cluster's Kubernetes is not supported, or that it cannot be told. Neither keeps the
// operator from starting: an upgrade of the cluster must not take the GPUs away.
func tellServer(config *rest.Config, httpClient *http.Client, log logr.Logger) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		log.Error(err, "The version of the cluster is not known")
		return
	}
	server, err := client.ServerVersion()
	if err != nil {
		log.Error(err, "The version of the cluster is not known")
		return
	}
	sentence, err := version.OutOfRange(server.GitVersion)
	if err != nil {
		log.Error(err, "The version of the cluster is not known")
		return
	}
	if sentence != "" {
		log.Info("The cluster is not supported", "reason", sentence)
	}
}
