package migmanager

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/capability"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/requirement"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Name of the operand.
const Name operand.Name = "mig-manager"

const mainContainer = "nvidia-mig-manager"

// defaultImage is NVIDIA's published image, at the version that this release was made for.
var defaultImage = image.Default{
	Name: "mig-manager", Variable: "MIG_MANAGER_IMAGE", Field: "migManager",
	Repository: "nvcr.io/nvidia/cloud-native", Image: "k8s-mig-manager", Version: "v0.15.0",
}

// Operand is the MIG manager.
func Operand() operand.Operand {
	return operand.Operand{
		Name:           Name,
		Images:         []image.Default{defaultImage},
		Workloads:      []nodeinfo.Workload{nodeinfo.WorkloadContainer},
		NeedsInjection: true,
		PartitionsGPUs: true,
		LogContainer:   mainContainer,
		Requires:       requirement.AfterToolkit(),
		Serves:         serves,
		Placement:      placement,
		Decide:         decide,
		Instances:      instances,
		Layout:         layout,

		References: references,
		Doubtful:   doubtful,
	}
}

// values are the values that the templates insert.
type values struct {
	Image, PullPolicy string
	// ConfigMap has the MIG layouts in its key config.yaml. They are mounted as ConfigFile, which the variable
	// ConfigVariable names.
	ConfigMap, ConfigFile, ConfigVariable string
	// ClientsConfigMap has the services in its key clients.yaml.
	ClientsConfigMap string
}

func decide(in operand.Input) operand.Decision {
	if !*in.Spec.MIGManager.Enabled {
		return operand.Disabled("spec.migManager.enabled")
	}
	return operand.Accept()
}

// capableProducts are parts of the names of GPUs that support MIG, as in NVIDIA's operator.
var capableProducts = []string{"h100", "a100", "a30"}

// serves installs the MIG manager where GPU Feature Discovery reports that the GPUs can be partitioned. Until it has
// reported, the GPU's product name decides. vGPUs cannot be partitioned by their guest.
func serves(facts nodeinfo.Facts) operand.Decision {
	if facts.VGPUGuest {
		return operand.Decision{Choice: operand.Absent}
	}
	capable := facts.MIGCapable
	product := strings.ToLower(facts.Product)
	isCapable := func(name string) bool { return strings.Contains(product, name) }
	if capable == "" && slices.ContainsFunc(capableProducts, isCapable) {
		capable = labels.True
	}
	return capability.Decide(Name, capable, facts)
}

// layout returns the MIG layout of nodes for which a user requests none, spec.migManager.config.default. Without
// spec.migManager.config there is none, as with NVIDIA's operator.
func layout(in operand.Input) string {
	config := in.Spec.MIGManager.Config
	if config == nil || in.CheckMIGLayout(*config.Default) != "" {
		return ""
	}
	return *config.Default
}

// doubtful reports a default layout that the user's ConfigMap does not have: nodes do not get it.
func doubtful(in operand.Input) []string {
	var notes []string
	for _, use := range references(in) {
		notes = append(notes, in.FileNotes(use, use.Keys...)...)
	}
	config := in.Spec.MIGManager.Config
	if config == nil {
		return notes
	}
	if problem := in.CheckMIGLayout(*config.Default); problem != "" {
		notes = append(notes, "spec.migManager.config.default: "+problem+": add it, or set default to one of them")
	}
	return notes
}

// references returns the user's ConfigMaps. The operand creates the default ones.
func references(in operand.Input) []operand.Use {
	spec := in.Spec.MIGManager
	var uses []operand.Use
	if spec.Config != nil && spec.Config.Name != effective.MIGLayouts {
		use := operand.ConfigMapUse("spec.migManager.config.name", spec.Config.Name, labels.MIGLayoutsKey)
		use.Partitions = true
		uses = append(uses, use)
	}
	if spec.GPUClientsConfig.Name != effective.GPUClients {
		uses = append(uses,
			operand.ConfigMapUse("spec.migManager.gpuClientsConfig.name", spec.GPUClientsConfig.Name,
				labels.GPUClientsKey))
	}
	return uses
}

func instances(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
	spec := in.Spec.MIGManager
	ref, err := in.Images.Of(defaultImage).Resolve(spec.ImageSpec, "")
	if err != nil {
		return nil, fmt.Errorf("spec.migManager: %w", err)
	}
	values := values{
		Image:            ref.Image,
		PullPolicy:       string(spec.ImagePullPolicy),
		ConfigMap:        effective.MIGLayouts,
		ConfigFile:       "config-default.yaml",
		ConfigVariable:   "DEFAULT_CONFIG_FILE",
		ClientsConfigMap: spec.GPUClientsConfig.Name,
	}
	// A user's MIG layouts replace all others. The MIG manager uses the default ones only if it cannot detect what the
	// GPUs support.
	if spec.Config != nil && spec.Config.Name != effective.MIGLayouts {
		values.ConfigMap, values.ConfigFile, values.ConfigVariable = spec.Config.Name, "config.yaml", "CONFIG_FILE"
	}
	var env operand.Env
	// Where it copies itself on a host that has its own driver.
	installDir := in.Spec.Paths().ToolkitInstallDir
	env.AddIf(installDir != labels.ToolkitInstallDir, "HOST_NVIDIA_DIR", installDir)
	if in.CDIEnabled() {
		env.Add("CDI_ENABLED", labels.True)
		env.AddCDIHook(in)
	}
	return []operand.Instance{{
		Image:       ref.Image,
		Version:     ref.Version,
		PullSecrets: spec.ImagePullSecrets,
		Main:        mainContainer,
		Container:   spec.ContainerSpec,
		Additions:   map[string]operand.Additions{mainContainer: {Env: env}},
		Values:      values,
	}}, nil
}

func placement(in operand.Input) operand.Placement {
	return operand.Placement{PlacementSpec: in.Spec.MIGManager.PlacementSpec, Field: "spec.migManager"}
}
