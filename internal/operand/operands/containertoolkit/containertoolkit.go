package containertoolkit

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/validator"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Name of the operand.
const Name operand.Name = "container-toolkit"

// defaultImage is NVIDIA's published image, at the version that this release was made for.
var defaultImage = image.Default{
	Name: "container-toolkit", Variable: "CONTAINER_TOOLKIT_IMAGE", Field: "toolkit",
	Repository: "nvcr.io/nvidia/k8s", Image: "container-toolkit", Version: "v1.20.0",
}

// Operand is the container toolkit.
func Operand() operand.Operand {
	return operand.Operand{
		Name:       Name,
		Images:     []image.Default{defaultImage},
		Workloads:  []nodeinfo.Workload{nodeinfo.WorkloadContainer},
		Stage:      v1.StageToolkit,
		DaemonSet:  "nvidia-container-toolkit-daemonset",
		IsInjector: true,
		Requires:   []operand.Requirement{{On: "driver", Scope: operand.Node, Marker: labels.MarkerDriver}},
		Proofs:     []operand.Proof{{Marker: labels.MarkerDriver, Of: "driver", Container: validation}},
		ServesNode: serves,
		Placement:  placement,
		Decide:     decide,
		Instances:  instances,
		Varies:     varies,

		HostRuntime: hostRuntime,
	}
}

const (
	mainContainer = "nvidia-container-toolkit-ctr"
	// validation is the init container that validates the driver, and copies gpu-node for the main container.
	validation = "driver-validation"
	copiedDir  = "/copied"
)

// values are the values that the template inserts.
type values struct {
	Image, PullPolicy string
	Layout            string
	Runtime           string
	// Restarts: the toolkit restarts the container runtime, which listens on Socket, a path in the container.
	Restarts bool
	Socket   string
	// Hooks: the toolkit may write an OCI hook to HooksDir on the host.
	Hooks    bool
	HooksDir string
}

func decide(in operand.Input) operand.Decision {
	if !*in.Spec.Toolkit.Enabled {
		return operand.Disabled("spec.toolkit.enabled")
	}
	if err := checkPaths(in.Spec.Toolkit.Env); err != nil {
		return operand.Refuse(v1.ReasonInvalidSpec, err.Error())
	}
	return operand.Accept()
}

func instances(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
	spec := in.Spec.Toolkit
	ref, err := in.Images.Of(defaultImage).Resolve(spec.ImageSpec, "")
	if err != nil {
		return nil, fmt.Errorf("spec.toolkit: %w", err)
	}
	if err := checkAmbiguousPaths(spec.Env, in.Layouts); err != nil && !in.NRIEnabled() {
		return nil, err
	}
	container := spec.ContainerSpec
	container.Env = passedOn(spec.Env)
	var found []operand.Instance
	for _, layout := range in.Layouts {
		if checkLayout(in, layout).Choice != operand.Install {
			continue
		}
		s := settingsOf(in, layout)
		s.Image, s.PullPolicy = ref.Image, string(spec.ImagePullPolicy)
		found = append(found, operand.Instance{
			Suffix:      "-" + layout.Name,
			Layout:      layout.Name,
			Image:       ref.Image,
			Version:     ref.Version,
			PullSecrets: spec.ImagePullSecrets,
			Main:        mainContainer,
			Container:   container,
			InitEnv:     validator.Env(in, validation),
			Additions:   map[string]operand.Additions{mainContainer: s.main, validation: validationSettings(s.Restarts)},
			Volumes:     s.volumes,
			Values:      s.values,
		})
	}
	return found, nil
}

// validationSettings returns the settings of the container that validates the driver. restarts: the toolkit restarts
// the container runtime.
func validationSettings(restarts bool) operand.Additions {
	settings := operand.Additions{
		Args:   []string{labels.CopyToFlag + copiedDir},
		Mounts: []corev1.VolumeMount{{Name: "gpu-operator", MountPath: copiedDir}},
	}
	if restarts {
		settings.Args = append(settings.Args, "--runtime-follows")
	}
	return settings
}

func placement(in operand.Input) operand.Placement {
	return operand.Placement{PlacementSpec: in.Spec.Toolkit.PlacementSpec, Field: "spec.toolkit"}
}

// varies reports whether a node pool overrides the toolkit's image.
func varies(nodePool v1.NodePoolSpec) bool {
	return nodePool.Toolkit != nil && image.IsSet(nodePool.Toolkit.ImageSpec)
}
