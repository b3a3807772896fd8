package dcgmexporter

import (
	"fmt"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/requirement"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/servicemonitor"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Name of the operand.
const Name operand.Name = "dcgm-exporter"

// defaultImage is NVIDIA's published image, at the version that this release was made for.
var defaultImage = image.Default{
	Name: "dcgm-exporter", Variable: "DCGM_EXPORTER_IMAGE", Field: "dcgmExporter",
	Repository: "nvcr.io/nvidia/k8s", Image: "dcgm-exporter", Version: "4.6.0-4.8.3-distroless",
}

// app is the name of the DaemonSet and of the Service, and their label app.
const app = "nvidia-dcgm-exporter"

// Operand is the DCGM exporter. It does not require the stand-alone engine: it retries until the engine answers.
func Operand() operand.Operand {
	return operand.Operand{
		Name:           Name,
		Images:         []image.Default{defaultImage},
		Workloads:      []nodeinfo.Workload{nodeinfo.WorkloadContainer},
		NeedsInjection: true,
		Requires:       requirement.AfterToolkit(),
		Placement:      placement,
		Decide:         decide,
		Instances:      instances,

		References: references,
		Doubtful:   doubtful,
	}
}

func decide(in operand.Input) operand.Decision {
	if !*in.Spec.DCGMExporter.Enabled {
		return operand.Disabled("spec.dcgmExporter.enabled")
	}
	return operand.Accept()
}

func references(in operand.Input) []operand.Use {
	return []operand.Use{
		operand.ConfigMapUse("spec.dcgmExporter.config.name", in.Spec.DCGMExporter.Config.Name, metricsKey),
	}
}

// doubtful reports the lines of the user's file that the exporter does not take, and a ConfigMap that it cannot read.
func doubtful(in operand.Input) []string {
	notes := in.FileNotes(references(in)[0], metricsKey)
	value, _ := variable(in.Spec.DCGMExporter, configMapEnv)
	if value == "" || value == noConfigMap {
		return notes
	}
	if namespace, name, isPair := strings.Cut(value, ":"); !isPair || name == "" || namespace != in.Namespace {
		notes = append(notes, fmt.Sprintf("spec.dcgmExporter.env: %s is %s, but must be %s:NAME, as the exporter may read "+
			"ConfigMaps of this namespace alone", configMapEnv, value, in.Namespace))
	}
	return notes
}

func instances(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
	spec := in.Spec.DCGMExporter
	ref, err := in.Images.Of(defaultImage).Resolve(spec.ImageSpec, "")
	if err != nil {
		return nil, fmt.Errorf("spec.dcgmExporter: %w", err)
	}
	values, err := valuesOf(in, ref)
	if err != nil {
		return nil, fmt.Errorf("spec.dcgmExporter: %w", err)
	}
	container := spec.ContainerSpec
	if container.HostNetwork == nil && usesHostEngine(in) {
		container.HostNetwork = new(true)
	}
	added, volumes := settings(in)
	return []operand.Instance{{
		Image:       ref.Image,
		Version:     ref.Version,
		PullSecrets: spec.ImagePullSecrets,
		Main:        app,
		Container:   container,
		Additions:   map[string]operand.Additions{app: added},
		Volumes:     volumes,
		Monitor:     servicemonitor.Of(in, app, spec.ServiceMonitor),
		Values:      values,
	}}, nil
}

// placement omits the annotations: they are for the pods only, and the template inserts them.
func placement(in operand.Input) operand.Placement {
	placement := operand.Placement{PlacementSpec: in.Spec.DCGMExporter.PlacementSpec, Field: "spec.dcgmExporter"}
	placement.Annotations = nil
	return placement
}
