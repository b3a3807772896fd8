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
	// pauseTimeout is how long the manager waits for the pods of one operand to leave.
	pauseTimeout = 5 * time.Minute
)

// paused are the operands that leave a node before its driver is replaced, with the app label of their pods, in the
// order in which the manager waits for them.
var paused = [][2]string{
	{"operator-validator", "nvidia-operator-validator"},
	{"container-toolkit", "nvidia-container-toolkit-daemonset"},
	{"device-plugin", "nvidia-device-plugin-daemonset"},
	{"gpu-feature-discovery", "gpu-feature-discovery"},
	{"dcgm-exporter", "nvidia-dcgm-exporter"},
	{"dcgm", "nvidia-dcgm"},
	{"mig-manager", "nvidia-mig-manager"},
}

// manageDriver is k8s-driver-manager: it removes a driver from the node before another one is installed.
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
	if err := relabel(ctx, client, node, paused, deployTrue, deployPaused); err != nil {
		return err
	}
	if err := awaitLeft(ctx, client, os.Getenv("OPERATOR_NAMESPACE"), node, paused); err != nil {
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
	return relabel(ctx, client, node, paused, deployPaused, deployTrue)
}

// object is the part of a Kubernetes object that is read here.
type object struct {
	Metadata struct {
		Name, ResourceVersion string
		Labels                map[string]string
	}
}

// relabel changes the deploy labels of those operands from one value to another.
func relabel(ctx context.Context, client *apiClient, node string, operands [][2]string, from, to string) error {
	var found object
	path := "/api/v1/nodes/" + node
	if err := client.call(ctx, http.MethodGet, path, nil, &found); err != nil {
		return err
	}
	changes := map[string]string{}
	for _, operand := range operands {
		key := deployPrefix + operand[0]
		switch value, there := found.Metadata.Labels[key]; {
		case value == from:
			changes[key] = to
		case !there:
			// Like the real one, which reads a missing label as empty.
			changes[key] = ""
		}
	}
	return label(ctx, client, node, changes)
}

// label writes labels of a node.
func label(ctx context.Context, client *apiClient, node string, labels map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return err
	}
	return client.call(ctx, http.MethodPatch, "/api/v1/nodes/"+node, patch, &object{})
}

// podsOf returns the pods of an operand on a node, by their app label.
func podsOf(ctx context.Context, client *apiClient, namespace, node, app string) ([]object, error) {
	query := url.Values{"labelSelector": {"app=" + app}, "fieldSelector": {"spec.nodeName=" + node}}
	var pods struct{ Items []object }
	err := client.call(ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods?"+query.Encode(), nil, &pods)
	return pods.Items, err
}

// awaitLeft waits until the operands have no pod on the node.
func awaitLeft(ctx context.Context, client *apiClient, namespace, node string, operands [][2]string) error {
	for _, operand := range operands {
		deadline := time.Now().Add(pauseTimeout)
		for {
			pods, err := podsOf(ctx, client, namespace, node, operand[1])
			if err != nil {
				return err
			}
			if len(pods) == 0 {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("the pods of %s did not leave within %s: %s", operand[0], pauseTimeout, names(pods))
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
