package app

import (
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/clusterpolicy/gpu-operator/internal/version"
)

const versionUnknown = "Continuing without the cluster's version of Kubernetes, which could not be determined"

// logServerVersion logs if the cluster's Kubernetes version is not supported, not tested or unknown. None of these is
// fatal: an upgrade of the cluster must not take the GPUs away.
func logServerVersion(config *rest.Config, httpClient *http.Client, log logr.Logger) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		log.Error(err, versionUnknown)
		return
	}
	server, err := client.ServerVersion()
	if err != nil {
		log.Error(err, versionUnknown)
		return
	}
	sentence, err := version.OutOfRange(server.GitVersion)
	if err != nil {
		log.Error(err, versionUnknown)
		return
	}
	if sentence != "" {
		log.Info("Continuing on a version of Kubernetes that this release has not been tested on", "reason", sentence)
	}
}
