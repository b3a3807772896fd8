package contract

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// words returns the command line, as far as the manifest sets it.
func words(c *corev1.Container) []string {
	return append(append([]string{}, c.Command...), c.Args...)
}

// onNode splits the command line of the on-node program into its own arguments and the command that it executes.
func onNode(c *corev1.Container) (own, becomes []string, isOnNode bool) {
	all := words(c)
	if len(all) == 0 || path.Base(all[0]) != path.Base(labels.HelperBinary) {
		return nil, nil, false
	}
	for i, word := range all {
		if word == "--" {
			return all[1:i], all[i+1:], true
		}
	}
	return all[1:], nil, true
}

// runs returns the program of the container, whatever starts it.
func runs(_ place, c *corev1.Container) (any, error) {
	if _, becomes, isOnNode := onNode(c); isOnNode {
		return becomes, nil
	}
	return words(c), nil
}

func gpuNode(_ place, c *corev1.Container) (any, error) {
	own, _, isOnNode := onNode(c)
	if !isOnNode {
		return nil, fmt.Errorf("%v is not the on-node program", words(c))
	}
	return own, nil
}

// exec returns what "gpu-node exec" does: the marker that it waits for, the command that it executes, and the source
// of the variables that it adds. A container with an image of NVIDIA must mount the program and the markers.
func exec(p place, c *corev1.Container) (any, error) {
	own, becomes, isOnNode := onNode(c)
	if !isOnNode || len(own) == 0 || own[0] != "exec" {
		return nil, fmt.Errorf("%v is not gpu-node exec", words(c))
	}
	if problem := notInstalled(p.spec(), c); problem != "" {
		return nil, fmt.Errorf("%s: %s", words(c)[0], problem)
	}
	if sees(p.spec(), c, labels.ValidationsDir) == nil {
		return nil, fmt.Errorf("it does not mount %s", labels.ValidationsDir)
	}
	found := map[string]any{"marker": "driver", "runs": becomes}
	modules, fromMarker := map[string]string{}, map[string]string{}
	for name, values := range flags(own[1:]) {
		for _, value := range values {
			variable, source, _ := strings.Cut(value, "=")
			switch name {
			case "--marker":
				found["marker"] = value
			case "--env-if-module":
				modules[variable] = source
			case "--env-from-marker":
				fromMarker[variable] = source
			}
		}
	}
	found["modules"], found["fromMarker"] = modules, fromMarker
	return found, nil
}

// flags returns the values of each flag, given as --flag=value or --flag value.
func flags(arguments []string) map[string][]string {
	all := map[string][]string{}
	for i := 0; i < len(arguments); i++ {
		name, value, together := strings.Cut(arguments[i], "=")
		if !together && i+1 < len(arguments) {
			i++
			value = arguments[i]
		}
		all[name] = append(all[name], value)
	}
	return all
}

// notInstalled returns why the on-node program is not in a container of another image; empty if it is.
func notInstalled(pod *corev1.PodSpec, c *corev1.Container) string {
	if c.Image == helper {
		return ""
	}
	at := covering(c, words(c)[0])
	if at == nil {
		return "the image does not have it, and it is in no volume"
	}
	for i := range pod.InitContainers {
		init := &pod.InitContainers[i]
		own, _, isOnNode := onNode(init)
		if !isOnNode || init.Image != helper {
			continue
		}
		if to := covering(init, copiedTo(own)); to != nil && to.Name == at.Name {
			return ""
		}
	}
	return "no init container copies it there"
}

// copiedTo returns the directory that the on-node program copies itself to with these arguments; empty if none.
func copiedTo(args []string) string {
	if len(args) == 2 && args[0] == "copy" {
		return args[1]
	}
	for _, arg := range args {
		if dir, copies := strings.CutPrefix(arg, "--copy-to="); copies {
			return dir
		}
	}
	return ""
}

func preStop(_ place, c *corev1.Container) (any, error) {
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Exec == nil {
		return nil, nil
	}
	return strings.Join(c.Lifecycle.PreStop.Exec.Command, " "), nil
}

// probe returns the probe with port names replaced by numbers.
func probe(c *corev1.Container, p *corev1.Probe) *corev1.Probe {
	resolved := p.DeepCopy()
	for _, port := range c.Ports {
		if resolved != nil && resolved.HTTPGet != nil && resolved.HTTPGet.Port.String() == port.Name {
			resolved.HTTPGet.Port = intstr.FromInt32(port.ContainerPort)
		}
		if resolved != nil && resolved.TCPSocket != nil && resolved.TCPSocket.Port.String() == port.Name {
			resolved.TCPSocket.Port = intstr.FromInt32(port.ContainerPort)
		}
	}
	return resolved
}

func probeText(p place, c *corev1.Container) (any, error) {
	probe := map[string]*corev1.Probe{"startupProbe": c.StartupProbe, "livenessProbe": c.LivenessProbe}[p.row.Name]
	if probe == nil || probe.Exec == nil {
		return nil, nil
	}
	return strings.Join(probe.Exec.Command, " "), nil
}

func port(p place, c *corev1.Container) (any, error) {
	for _, port := range c.Ports {
		if port.Name == p.row.Name {
			return port, nil
		}
	}
	return nil, nil
}

// metricsPort returns the port argument of "gpu-node export", or its default.
func metricsPort(_ place, c *corev1.Container) (any, error) {
	own, _, _ := onNode(c)
	for name, values := range flags(own) {
		if name == "--port" {
			return values[0], nil
		}
	}
	if value := env(c, "METRICS_PORT"); value != nil {
		return value, nil
	}
	return "8000", nil
}

// env returns the value of a variable: the path of a field, except that the pod's namespace is resolved.
func env(c *corev1.Container, name string) any {
	for _, variable := range c.Env {
		if variable.Name != name {
			continue
		}
		switch from := variable.ValueFrom; {
		case from == nil:
			return variable.Value
		case from.FieldRef == nil:
			return from
		case from.FieldRef.FieldPath == "metadata.namespace":
			return namespace
		default:
			return from.FieldRef.FieldPath
		}
	}
	return nil
}

func envFrom(_ place, c *corev1.Container) (any, error) {
	var all []string
	for _, from := range c.EnvFrom {
		if from.SecretRef != nil {
			all = append(all, from.SecretRef.Name)
		}
	}
	return all, nil
}
