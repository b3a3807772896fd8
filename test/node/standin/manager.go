//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	deployPrefix = "nvidia.com/gpu.deploy."
	deployTrue   = "true"
	deployPaused = "paused-for-driver-upgrade"
	// pauseTimeout is how long the manager waits for the pods of one operand to go.
	pauseTimeout = 5 * time.Minute
)

// paused are the operands that leave a node before its driver is replaced, with the app label of their pods,
// in the order in which the manager waits for them.
var paused = [][2]string{
	{"operator-validator", "nvidia-operator-validator"},
	{"container-toolkit", "nvidia-container-toolkit-daemonset"},
	{"device-plugin", "nvidia-device-plugin-daemonset"},
	{"gpu-feature-discovery", "gpu-feature-discovery"},
	{"dcgm-exporter", "nvidia-dcgm-exporter"},
	{"dcgm", "nvidia-dcgm"},
	{"mig-manager", "nvidia-mig-manager"},
}

// manageDriver is k8s-driver-manager: it clears the node of a driver before another one is installed.
func manageDriver(args []string) error {
	if !slices.Equal(args, []string{"uninstall_driver"}) {
		return fmt.Errorf("driver-manager is played with uninstall_driver alone, not with %q", args)
	}
	if !modulesLoaded() {
		return unmountRoot()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client, err := inCluster()
	if err != nil {
		return err
	}
	node := os.Getenv("NODE_NAME")
	if err := relabel(ctx, client, node, deployTrue, deployPaused); err != nil {
		return err
	}
	if err := awaitLeft(ctx, client, node); err != nil {
		return err
	}
	digest, _ := os.ReadFile(driverState)
	if string(digest) != os.Getenv("DRIVER_CONFIG_DIGEST") {
		if err := unloadModules(); err != nil {
			return err
		}
	}
	if err := unmountRoot(); err != nil {
		return err
	}
	return relabel(ctx, client, node, deployPaused, deployTrue)
}

// object is what is read of an object of Kubernetes.
type object struct {
	Metadata struct {
		Name, ResourceVersion string
		Labels                map[string]string
	}
}

// relabel changes the deploy labels of the paused operands that have a value to another one.
func relabel(ctx context.Context, client *apiClient, node, from, to string) error {
	var found object
	path := "/api/v1/nodes/" + node
	if err := client.call(ctx, http.MethodGet, path, nil, &found); err != nil {
		return err
	}
	changes := map[string]string{}
	for _, operand := range paused {
		if key := deployPrefix + operand[0]; found.Metadata.Labels[key] == from {
			changes[key] = to
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": changes}})
	if err != nil {
		return err
	}
	return client.call(ctx, http.MethodPatch, path, patch, &found)
}

// awaitLeft waits until the paused operands have no pod on the node.
func awaitLeft(ctx context.Context, client *apiClient, node string) error {
	for _, operand := range paused {
		query := url.Values{"labelSelector": {"app=" + operand[1]}, "fieldSelector": {"spec.nodeName=" + node}}
		path := "/api/v1/namespaces/" + os.Getenv("OPERATOR_NAMESPACE") + "/pods?" + query.Encode()
		deadline := time.Now().Add(pauseTimeout)
		for {
			var pods struct{ Items []object }
			if err := client.call(ctx, http.MethodGet, path, nil, &pods); err != nil {
				return err
			}
			if len(pods.Items) == 0 {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("the pods of %s did not leave within %s: %s", operand[0], pauseTimeout, names(pods.Items))
			}
			time.Sleep(time.Second)
		}
	}
	return nil
}

func names(objects []object) string {
	var all []string
	for _, o := range objects {
		all = append(all, o.Metadata.Name)
	}
	return strings.Join(all, ", ")
}
