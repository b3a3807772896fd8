package effective

import v1 "github.com/clusterpolicy/gpu-operator/api/v1"

// virtualMachines are the blocks for nodes whose GPUs are for virtual machines. NVIDIA's chart enables their
// operands, which have no effect without sandboxWorkloads.enabled.
func virtualMachines(s *v1.ClusterPolicySpec) {
	sandboxWorkloads(block(&s.SandboxWorkloads))
	vfioManager(block(&s.VFIOManager))
	sandboxDevicePlugin(block(&s.SandboxDevicePlugin))
	kataSandboxDevicePlugin(block(&s.KataSandboxDevicePlugin))
	vgpuManager(block(&s.VGPUManager))
	vgpuDeviceManager(block(&s.VGPUDeviceManager))
	ccManager(block(&s.CCManager))
}

func sandboxWorkloads(s *v1.SandboxWorkloadsSpec) {
	option(&s.Enabled, false)                       // NVIDIA
	value(&s.DefaultWorkload, v1.WorkloadContainer) // NVIDIA
	value(&s.Mode, v1.SandboxKubeVirt)              // NVIDIA
}

func vfioManager(s *v1.VFIOManagerSpec) {
	option(&s.Enabled, false) // NVIDIA; its chart has true
	image(&block(&s.DriverManager).ImageSpec)
	image(&s.ImageSpec)
	container(&s.ContainerSpec)
}

func sandboxDevicePlugin(s *v1.SandboxDevicePluginSpec) {
	option(&s.Enabled, false) // NVIDIA; its chart has true
	image(&s.ImageSpec)
	container(&s.ContainerSpec)
}

func kataSandboxDevicePlugin(s *v1.KataSandboxDevicePluginSpec) {
	option(&s.Enabled, false) // NVIDIA; its chart has true
	image(&s.ImageSpec)
	container(&s.ContainerSpec)
}

func vgpuManager(s *v1.VGPUManagerSpec) {
	option(&s.Enabled, false) // NVIDIA
	image(&block(&s.DriverManager).ImageSpec)
	block(&s.KernelModuleConfig)
	image(&s.ImageSpec)
	container(&s.ContainerSpec)
}

func vgpuDeviceManager(s *v1.VGPUDeviceManagerSpec) {
	option(&s.Enabled, false) // NVIDIA; its chart has true
	config := block(&s.Config)
	value(&config.Name, "default-vgpu-devices-config") // NVIDIA
	value(&config.Default, "default")                  // NVIDIA
	image(&s.ImageSpec)
	container(&s.ContainerSpec)
}

func ccManager(s *v1.CCManagerSpec) {
	option(&s.Enabled, false) // NVIDIA; its chart has true
	image(&s.ImageSpec)
	container(&s.ContainerSpec)
}
