package nodestatusexporter

import (
	"cmp"
	"fmt"
	"strconv"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/servicemonitor"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Name of the operand.
const Name operand.Name = "node-status-exporter"

// app is the name of the DaemonSet and of the Service, and their label app.
const app = "nvidia-node-status-exporter"

const (
	// portEnv is the variable with the port of gpu-node export.
	portEnv     = "METRICS_PORT"
	defaultPort = 8000
)

// Operand is the node status exporter. It requires nothing, as its metrics report what is not installed yet.
func Operand() operand.Operand {
	return operand.Operand{
		Name:      Name,
		Workloads: []nodeinfo.Workload{nodeinfo.WorkloadContainer},
		Placement: placement,
		Decide:    decide,
		Instances: instances,
	}
}

type values struct {
	Image, PullPolicy string
	Port              int
}

func decide(in operand.Input) operand.Decision {
	if !*in.Spec.NodeStatusExporter.Enabled {
		return operand.Decision{
			Choice: operand.Absent, Reason: v1.ReasonDisabledBySpec, Message: "spec.nodeStatusExporter.enabled is not true",
		}
	}
	return operand.Accept()
}

func instances(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
	spec := in.Spec.NodeStatusExporter
	ref, policy, err := imageOf(in, spec.ImageSpec)
	if err != nil {
		return nil, err
	}
	port, err := portOf(spec.Env)
	if err != nil {
		return nil, fmt.Errorf("spec.nodeStatusExporter.env: %w", err)
	}
	return []operand.Instance{{
		Image:       ref.Image,
		Version:     ref.Version,
		PullSecrets: spec.ImagePullSecrets,
		Main:        app,
		Container:   spec.ContainerSpec,
		Monitor:     servicemonitor.Of(in, app, spec.ServiceMonitor),
		Values: values{
			Image:      ref.Image,
			PullPolicy: policy,
			Port:       port,
		},
	}}, nil
}

// imageOf returns the image and the pull policy: those of this block if it names an image, or else the helper image.
func imageOf(in operand.Input, spec v1.ImageSpec) (image.Reference, string, error) {
	policy := cmp.Or(string(spec.ImagePullPolicy), string(in.HelperSpec().ImagePullPolicy))
	if image.Named(spec) {
		ref, err := image.Operator().Resolve(spec, "")
		if err != nil {
			return ref, "", fmt.Errorf("spec.nodeStatusExporter: %w", err)
		}
		return ref, policy, nil
	}
	ref, err := image.Helper(in.HelperSpec(), in.OperatorImage)
	if err != nil {
		return ref, "", fmt.Errorf("spec.validator: %w", err)
	}
	return ref, policy, nil
}

// portOf returns the port that the program listens on. The probes and the Service use it.
func portOf(env []v1.EnvVar) (int, error) {
	for _, variable := range env {
		if variable.Name != portEnv || variable.Value == "" {
			continue
		}
		port, err := strconv.Atoi(variable.Value)
		if err != nil || port < 1 || port > 65535 {
			return 0, fmt.Errorf("%s is %q: it must be a number from 1 to 65535", portEnv, variable.Value)
		}
		return port, nil
	}
	return defaultPort, nil
}

func placement(in operand.Input) operand.Placement {
	return operand.Placement{PlacementSpec: in.Spec.NodeStatusExporter.PlacementSpec, Field: "spec.nodeStatusExporter"}
}
