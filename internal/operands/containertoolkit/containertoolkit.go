package containertoolkit

import (
	"fmt"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands/internal/validator"
)

// Name of the operand.
const Name operand.Name = "container-toolkit"

// defaultImage is NVIDIA's published image, at the version that this release was made for.
var defaultImage = image.Default{
	Name: "container-toolkit", Field: "toolkit", Repository: "nvcr.io/nvidia/k8s", Image: "container-toolkit", Version: "v1.20.0",
}

// Operand is the container toolkit.
func Operand() operand.Operand {
	return operand.Operand{
		Name:       Name,
		Images:     []image.Default{defaultImage},
		Workloads:  []nodeinfo.Workload{nodeinfo.WorkloadContainer},
		Stage:      v1.StageToolkit,
		DaemonSet:  "nvidia-container-toolkit-daemonset",
		Injects:    true,
		Requires:   []operand.Requirement{{On: "driver", Scope: operand.Node, Marker: labels.MarkerDriver}},
		Proves:     []operand.Proof{{Marker: labels.MarkerDriver, Of: "driver", Container: "driver-validation"}},
		ServesNode: serves,
		Placement:  placement,
		Decide:     wanted,
		Instances:  instances,
		Varies:     varies,
	}
}

// values are what the template sees. Env and Mounts are those that depend on the container runtime.
type values struct {
	Image, PullPolicy string
	Layout            string
	Runtime           string
	Env               []variable
	CDI               bool
	Mounts            []mount
	// Restarts: the toolkit has the container runtime restart, which listens on Socket, a path in the container.
	Restarts bool
	Socket   string
	// Hooks tells whether the toolkit may write an OCI hook, HooksDir where on the host.
	Hooks    bool
	HooksDir string
}

type variable struct{ Name, Value string }

// mount is a directory of the host. Made tells that it is made where it is missing.
type mount struct {
	Name, At, Host string
	Made           bool
}

func wanted(in operand.Input) operand.Decision {
	if !*in.Spec.Toolkit.Enabled {
		return operand.Disabled("spec.toolkit.enabled")
	}
	if err := checkPaths(in.Spec.Toolkit.Env); err != nil {
		return operand.Refused(v1.ReasonInvalidSpec, err.Error())
	}
	return operand.Installed()
}

func instances(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
	spec := in.Spec.Toolkit
	ref, err := defaultImage.Resolve(spec.ImageSpec, "")
	if err != nil {
		return nil, fmt.Errorf("spec.toolkit: %w", err)
	}
	if err := ambiguous(spec.Env, in.Layouts); err != nil && !in.NRIEnabled() {
		return nil, err
	}
	container := spec.ContainerSpec
	container.Env = withoutPaths(spec.Env)
	var found []operand.Instance
	for _, layout := range in.Layouts {
		if reachable(in, layout).Choice != operand.Install {
			continue
		}
		v := runtimeValues(in, layout)
		v.Image, v.PullPolicy, v.CDI = ref.Image, string(spec.ImagePullPolicy), in.CDIEnabled()
		found = append(found, operand.Instance{
			Suffix:      "-" + layout.Name,
			Layout:      layout.Name,
			Image:       ref.Image,
			Version:     ref.Version,
			PullSecrets: spec.ImagePullSecrets,
			Main:        "nvidia-container-toolkit-ctr",
			Container:   container,
			InitEnv:     validator.Env(in, "driver-validation"),
			Values:      v,
		})
	}
	return found, nil
}

func placement(in operand.Input) operand.Placement {
	return operand.Placement{PlacementSpec: in.Spec.Toolkit.PlacementSpec, Field: "spec.toolkit"}
}

// varies tells whether a pool says something else of the container toolkit.
func varies(pool v1.NodePoolSpec) bool {
	return pool.Toolkit != nil && operand.VariesImage(pool.Toolkit.ImageSpec)
}
