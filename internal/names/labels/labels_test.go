package labels_test

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
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

func TestKindsOfKeys(t *testing.T) {
	const nfd, class = "feature.node.kubernetes.io/", "deviceclass.resource.kubernetes.io/"
	for name, test := range map[string]struct {
		is      func(string) bool
		yes, no []string
	}{
		"IsDiscoverable": {
			labels.IsDiscoverable, []string{nfd + "cpu-model.id", "nvidia.com/gpu.count"}, []string{"nvidia.com/gpu.present"},
		},
		"IsNodeFact": {
			labels.IsNodeFact, []string{nfd + "kernel-version.full", nfd + "pci-10de.present"}, []string{nfd + "cpu-model.id"},
		},
		"IsDRAResource": {
			labels.IsDRAResource, []string{class + "gpu.nvidia.com", class + "mig.nvidia.com", class + "vfio.gpu.nvidia.com"},
			[]string{"gpu.nvidia.com", class + "example.com", class},
		},
		"IsOwn": {
			labels.IsOwn, []string{"nvidia.com/gpu-operator.pool", "clusterpolicy.github.io/driver"},
			[]string{"nvidia.com/gpu-operator.driver.owner", "nvidia.com/gpu.present"},
		},
		"IsGPUResource": {
			labels.IsGPUResource, []string{"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"},
			[]string{"nvidia.com/gpus", "cpu"},
		},
	} {
		for _, key := range test.yes {
			if !test.is(key) {
				t.Errorf("%s(%q) is false", name, key)
			}
		}
		for _, key := range test.no {
			if test.is(key) {
				t.Errorf("%s(%q) is true", name, key)
			}
		}
	}
}

func TestListedByNFD(t *testing.T) {
	got := labels.ListedByNFD(map[string]string{
		"nfd.node.kubernetes.io/feature-labels":     "cpu-model.id,nvidia.com/gpu.count,",
		"own.nfd.node.kubernetes.io/feature-labels": "a", "nfd.node.kubernetes.io/extended-resources": "b",
	})
	want := map[string]bool{
		"feature.node.kubernetes.io/cpu-model.id": true, "nvidia.com/gpu.count": true, "feature.node.kubernetes.io/a": true,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestIsApplied(t *testing.T) {
	for _, test := range []struct {
		manager, operand, digest string
		want                     bool
	}{
		{"gpu-operator", "driver", "a", true}, {"other", "driver", "a", false}, {"gpu-operator", "", "a", false},
		{"gpu-operator", "driver", "", false}, {"other", "driver", "", false},
	} {
		if got := labels.IsApplied(&metav1.ObjectMeta{
			Labels:      map[string]string{labels.ManagedBy: test.manager, labels.Operand: test.operand},
			Annotations: map[string]string{labels.Digest: test.digest},
		}); got != test.want {
			t.Errorf("%v: got %t", test, got)
		}
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
