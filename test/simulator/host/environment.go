package host

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Container is one run of a container.
type Container struct {
	Pod  *corev1.Pod
	Spec corev1.Container
	// App is the pod's label "app".
	App string
	// HostIP and PodIP are the addresses of node and pod.
	HostIP, PodIP string
	// Injected: its pod has the GPU runtime's RuntimeClass, which injects the driver's programs into the container if
	// the environment requests GPUs.
	Injected bool
}

// serviceEnvironment returns the variables for the API server's Service that a kubelet sets in each container.
func serviceEnvironment(server string) ([]string, error) {
	address, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("parse the API server's address: %w", err)
	}
	if address.Scheme != "https" || address.Port() == "" {
		return nil, fmt.Errorf("the API server's address %s is not https://HOST:PORT", server)
	}
	return []string{"KUBERNETES_SERVICE_HOST=" + address.Hostname(), "KUBERNETES_SERVICE_PORT=" + address.Port()}, nil
}

// environment returns the environment of a container. bin is the directory of its own programs.
func (h *Host) environment(c Container, bin string) ([]string, error) {
	// The processes of all machines share the ports of this computer.
	env := append([]string{"HOSTNAME=" + c.Pod.Name, "METRICS_PORT=0"}, h.service...)
	visible := ""
	for _, variable := range c.Spec.Env {
		value := variable.Value
		if from := variable.ValueFrom; from != nil {
			if from.FieldRef == nil {
				return nil, fmt.Errorf("the variable %s has no fieldRef: other sources are not simulated", variable.Name)
			}
			var err error
			if value, err = field(c, from.FieldRef.FieldPath); err != nil {
				return nil, err
			}
		}
		if variable.Name == "NVIDIA_VISIBLE_DEVICES" {
			visible = value
		}
		env = append(env, variable.Name+"="+value)
	}
	path := []string{bin}
	if c.Injected && visible != "" && visible != "void" {
		path = append(path, filepath.Dir(h.Path(filepath.Join(driverRoot, smiPath))), filepath.Dir(h.Path(smiPath)))
	}
	return append(env, "PATH="+strings.Join(path, ":")), nil
}

// field returns the value of a field of the pod, as the downward API names it.
func field(c Container, path string) (string, error) {
	if key, found := strings.CutPrefix(path, "metadata.annotations['"); found {
		return c.Pod.Annotations[strings.TrimSuffix(key, "']")], nil
	}
	switch path {
	case "metadata.name":
		return c.Pod.Name, nil
	case "metadata.namespace":
		return c.Pod.Namespace, nil
	case "metadata.uid":
		return string(c.Pod.UID), nil
	case "spec.nodeName":
		return c.Pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return c.Pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return c.HostIP, nil
	case "status.podIP":
		return c.PodIP, nil
	default:
		return "", fmt.Errorf("the field %s is not simulated", path)
	}
}
