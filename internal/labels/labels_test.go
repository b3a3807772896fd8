package labels_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

func TestKeysAreValid(t *testing.T) {
	seen := map[string]bool{}
	for _, key := range []string{
		labels.DiscoveryPCIPresent, labels.DiscoveryPCI3D, labels.DiscoveryPCIVGA, labels.DiscoveryKernel,
		labels.DiscoveryOSID, labels.DiscoveryOSVersion, labels.GPUPresent, labels.DeployOperands,
		labels.DeployClient, labels.GPUWorkload, labels.Pool, labels.DiscoveryLostSince, labels.ConditionGPUReady,
		labels.MIGCapable, labels.MPSCapable, labels.GPUProduct, labels.VGPUHostDriver, labels.MIGConfig,
		labels.DevicePluginConfig, labels.NodePool, labels.PoolNodePool, labels.NodePoolPrefix + "gpu-feature-discovery",
		labels.App, labels.ManagedBy, labels.Operand, labels.Digest, labels.TemplateDigest,
	} {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			t.Errorf("%s: %v", key, problems)
		}
		if seen[key] {
			t.Errorf("%s has two meanings", key)
		}
		seen[key] = true
	}
}

// The names are public: other programs, NVIDIA's images among them, have them built in.
func TestPublicNames(t *testing.T) {
	for got, want := range map[string]string{
		labels.GPUPresent:                   "nvidia.com/gpu.present",
		labels.DeployOperands:               "nvidia.com/gpu.deploy.operands",
		labels.DeployClient:                 "nvidia.com/gpu.deploy.client",
		labels.GPUWorkload:                  "nvidia.com/gpu.workload.config",
		labels.DriverRoot:                   "/run/nvidia/driver",
		labels.ValidationsDir:               "/run/nvidia/validations",
		labels.MarkerDriver.File():          "driver-ready",
		labels.MarkerToolkit.File():         "toolkit-ready",
		labels.MarkerPlugin.File():          "plugin-ready",
		labels.MarkerDriver.ReasonFile():    "driver.reason",
		labels.DriverContainerReady:         ".driver-ctr-ready",
		labels.IsHostDriverKey:              "IS_HOST_DRIVER",
		labels.DriverRootKey:                "NVIDIA_DRIVER_ROOT",
		labels.DriverRootMountKey:           "DRIVER_ROOT_CTR_PATH",
		labels.DevRootKey:                   "NVIDIA_DEV_ROOT",
		labels.DevRootMountKey:              "DEV_ROOT_CTR_PATH",
		labels.ManagedBy:                    "app.kubernetes.io/managed-by",
		labels.ManagedByValue:               "gpu-operator",
		labels.DefaultRuntimeClass:          "nvidia",
		labels.DevicePluginConfig:           "nvidia.com/device-plugin.config",
		labels.MPSRoot:                      "/run/nvidia/mps",
		labels.ResourceGPU:                  "nvidia.com/gpu",
		labels.ResourceMIGPrefix + "1g.5gb": "nvidia.com/mig-1g.5gb",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
