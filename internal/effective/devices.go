package effective

import (
	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// The ConfigMaps of the MIG manager that the operator brings: layouts for GPUs that it cannot ask for what they
// support, and the services of the host that use GPUs. NVIDIA's operator calls them the same.
const (
	MIGLayouts = "default-mig-parted-config"
	GPUClients = "default-gpu-clients"
)

func toolkit(s *v1.ToolkitSpec) {
	option(&s.Enabled, true)                       // NVIDIA
	value(&s.InstallDir, labels.ToolkitInstallDir) // NVIDIA
}

func devicePlugin(s *v1.DevicePluginSpec) {
	option(&s.Enabled, true)                   // NVIDIA
	block(&s.Config)                           // no name: none
	value(&block(&s.MPS).Root, labels.MPSRoot) // NVIDIA
}

func migManager(s *v1.MIGManagerSpec) {
	option(&s.Enabled, true) // NVIDIA
	if s.Config != nil {     // which its presence decides, as in NVIDIA's API; its chart always gives it
		value(&s.Config.Name, MIGLayouts)
		option(&s.Config.Default, labels.MIGAllDisabled)
	}
	value(&block(&s.GPUClientsConfig).Name, GPUClients) // NVIDIA
}
