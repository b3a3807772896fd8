package nodestatusexporter

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands/internal/gpunode"
	"github.com/clusterpolicy/gpu-operator/internal/operands/internal/servicemonitor"
)

// Name of the operand.
const Name operand.Name = "node-status-exporter"

// app is the name of the DaemonSet and of the Service, and their label app.
const app = "nvidia-node-status-exporter"

// defaultPort is that of gpu-node export.
const defaultPort = 8000

// field is that of the operand's block.
const field = "spec.nodeStatusExporter"

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
			Choice: operand.Absent, Reason: v1.ReasonDisabledBySpec, Message: field + ".enabled is not true",
		}
	}
	return operand.Accept()
}

func instances(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
	spec := in.Spec.NodeStatusExporter
	ref, policy, err := gpunode.Image(in, spec.ImageSpec, field)
	if err != nil {
		return nil, err
	}
	port, err := gpunode.Port(spec.Env, defaultPort, field)
	if err != nil {
		return nil, err
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

func placement(in operand.Input) operand.Placement {
	return operand.Placement{PlacementSpec: in.Spec.NodeStatusExporter.PlacementSpec, Field: field}
}
