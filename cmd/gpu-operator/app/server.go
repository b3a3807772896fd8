package app

import (
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/clusterpolicy/gpu-operator/internal/version"
)

const versionUnknown = "Continuing without the cluster's version of Kubernetes, which could not be determined"

// serverVersionNotes returns a sentence if the version of Kubernetes is not supported or not tested, and logs it;
// none if it is neither or unknown. Nothing of that is fatal: an upgrade of the cluster must not take the GPUs away.
func serverVersionNotes(config *rest.Config, httpClient *http.Client, log logr.Logger) []string {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		log.Error(err, versionUnknown)
		return nil
	}
	server, err := client.ServerVersion()
	if err != nil {
		log.Error(err, versionUnknown)
		return nil
	}
	sentence, err := version.OutOfRange(server.GitVersion)
	if err != nil {
		log.Error(err, versionUnknown)
		return nil
	}
	if sentence == "" {
		return nil
	}
	log.Info("Continuing on a version of Kubernetes that this release has not been tested on", "reason", sentence)
	return []string{sentence}
}
