package effective

import (
	"cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// The ConfigMaps that the operator installs for the MIG manager: MIG layouts for GPUs whose profiles it cannot query,
// and the host's services that use GPUs. They have the same names in NVIDIA's operator.
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
	if s.Config != nil {     // its presence has a meaning, as in NVIDIA's API; NVIDIA's chart always sets it
		value(&s.Config.Name, MIGLayouts)
		option(&s.Config.Default, labels.MIGAllDisabled)
		value(&s.Config.OnBusy, v1.MIGBusyHold) // running GPU work is not disturbed
	}
	value(&block(&s.GPUClientsConfig).Name, GPUClients) // NVIDIA
}

// minReplicas is the least number of shares that the device plugin accepts.
const minReplicas = 2

// Shares reports whether a number of replicas in spec.sharing makes pods share a GPU.
func Shares(replicas int32) bool { return replicas >= minReplicas }

// GPUReplicas returns how many pods share a whole GPU by spec.sharing; 0 if none do, or if it is not set.
func (s Spec) GPUReplicas() int {
	replicas := int32(0)
	switch sharing := s.Sharing; {
	case sharing == nil:
	case sharing.TimeSlicing != nil:
		replicas = sharing.TimeSlicing.Replicas
		for _, of := range sharing.TimeSlicing.ResourceReplicas {
			if of.Name == labels.ResourceGPU {
				replicas = cmp.Or(of.Replicas, replicas)
			}
		}
	case sharing.MPS != nil:
		replicas = sharing.MPS.Replicas
	}
	return int(replicas)
}
