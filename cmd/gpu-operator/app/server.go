package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
)

const versionUnknown = "Continuing without the cluster's version of Kubernetes, which could not be determined"

// serverVersion returns a Note with a sentence if the version of Kubernetes is not supported or not tested, and logs it
// when it changes; none if it is neither or unknown. Nothing of that is fatal: an upgrade of the cluster must not take
// the GPUs away.
func serverVersion(
	config *rest.Config, httpClient *http.Client, clock clock.PassiveClock, log logr.Logger,
) *observe.Note {
	logged := ""
	return observe.NewNote(clock, func(ctx context.Context) (string, error) {
		sentence, err := versionSentence(ctx, config, httpClient)
		if err != nil {
			log.Error(err, versionUnknown)
			return "", err
		}
		if sentence != "" && sentence != logged {
			log.Info("Continuing on a version of Kubernetes that this release has not been tested on", "reason", sentence)
		}
		logged = sentence
		return sentence, nil
	})
}

// versionSentence reads the version of the API server.
func versionSentence(ctx context.Context, config *rest.Config, httpClient *http.Client) (string, error) {
	client, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return "", err
	}
	text, err := client.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", err
	}
	server := apiversion.Info{}
	if err := json.Unmarshal(text, &server); err != nil {
		return "", fmt.Errorf("reading /version: %w", err)
	}
	return version.OutOfRange(server.GitVersion)
}
