package fieldnotes_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/fieldnotes"
)

// oneVariable configures a check.
var oneVariable = &v1.ValidatorComponentSpec{Env: []v1.EnvVar{{Name: "A", Value: "b"}}}

// sharedMIG shares MIG devices, which nodes have only by their own names with mig.strategy mixed.
var sharedMIG = &v1.SharingSpec{TimeSlicing: &v1.TimeSlicingSpec{
	ResourceReplicas: []v1.ResourceReplicasSpec{{Name: "nvidia.com/mig-1g.10gb", Replicas: 4}},
}}

// each sets one field alone, by its name in the condition.
var each = map[string]v1.ClusterPolicySpec{
	"spec.devicePlugin.config.default": {
		DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Default: "a"}},
	},
	"spec.sharing": {Sharing: &v1.SharingSpec{TimeSlicing: &v1.TimeSlicingSpec{RenameByDefault: new(true)}}},
	"spec.nodePools[].sharing": {NodePools: []v1.NodePoolSpec{{
		Name: "a", NodeSelector: v1.NodePoolSelector{"team": "a"}, Sharing: &v1.SharingSpec{MPS: &v1.MPSSharingSpec{}},
	}}},
	"spec.sharing.timeSlicing.resourceReplicas": {Sharing: sharedMIG},
	"spec.nodePools[].sharing.timeSlicing.resourceReplicas": {NodePools: []v1.NodePoolSpec{{
		Name: "a", NodeSelector: v1.NodePoolSelector{"team": "a"}, Sharing: sharedMIG,
	}}},
	"spec.dcgmExporter.podLabelAllowlistRegex": {
		DCGMExporter: &v1.DCGMExporterSpec{PodLabelAllowlistRegex: []string{"a"}},
	},
	"spec.dcgmExporter.hpcJobMapping.directory": {
		DCGMExporter: &v1.DCGMExporterSpec{HPCJobMapping: &v1.HPCJobMappingSpec{Directory: "/jobs"}},
	},
	"spec.driver.kernelModuleType": {
		Driver: &v1.DriverSpec{KernelModuleType: v1.KernelModuleProprietary}, GDS: &v1.GDSSpec{Enabled: new(true)},
	},
	"spec.driver.upgradePolicy.maxUnavailable": {Driver: &v1.DriverSpec{UpgradePolicy: &v1.DriverUpgradePolicySpec{
		AutoUpgrade: new(true), MaxUnavailable: new(intstr.FromString("0%")),
	}}},
	"spec.nodePools[].driver.upgradePolicy": {NodePools: []v1.NodePoolSpec{{
		Name: "team", NodeSelector: v1.NodePoolSelector{"team": "a"},
		Driver: &v1.NodePoolDriverSpec{UpgradePolicy: &v1.NodePoolUpgradePolicySpec{
			AutoUpgrade: new(true), MaxUnavailable: new(intstr.FromInt32(-1)),
		}},
	}}},
	"spec.gds.enabled": {
		GDS: &v1.GDSSpec{Enabled: new(true)}, Driver: &v1.DriverSpec{Enabled: new(false)},
	},
	"spec.gdrcopy.enabled": {
		GDRCopy: &v1.GDRCopySpec{Enabled: new(true)}, Driver: &v1.DriverSpec{Enabled: new(false)},
	},
	"spec.driver.rdma.enabled": {
		Driver: &v1.DriverSpec{Enabled: new(false), RDMA: &v1.RDMASpec{Enabled: new(true)}},
	},
	"spec.driver.rdma.useHostMofed": {Driver: &v1.DriverSpec{RDMA: &v1.RDMASpec{UseHostMOFED: new(true)}}},
	"spec.driver.upgradePolicy.drain.podSelector": {Driver: &v1.DriverSpec{UpgradePolicy: &v1.DriverUpgradePolicySpec{
		Drain: &v1.DrainSpec{PodSelector: "a=b"},
	}}},
	"spec.driver.upgradePolicy.waitForCompletion.timeoutSeconds": {Driver: &v1.DriverSpec{
		UpgradePolicy: &v1.DriverUpgradePolicySpec{
			WaitForCompletion: &v1.WaitForCompletionSpec{TimeoutSeconds: new(v1.TimeoutSeconds(60))},
		},
	}},
	"spec.driver.version": {Driver: &v1.DriverSpec{ImageSpec: v1.ImageSpec{Version: "580"}}},
	"spec.health.actions": {
		Health: &v1.HealthSpec{Actions: &v1.HealthActionsSpec{Reset: v1.HealthActionTaint}},
	},
	"spec.sandboxDevicePlugin":     {SandboxDevicePlugin: &v1.SandboxDevicePluginSpec{Enabled: new(true)}},
	"spec.vgpuDeviceManager":       {VGPUDeviceManager: &v1.VGPUDeviceManagerSpec{Enabled: new(true)}},
	"spec.vgpuManager":             {VGPUManager: &v1.VGPUManagerSpec{Enabled: new(true)}},
	"spec.vfioManager":             {VFIOManager: &v1.VFIOManagerSpec{Enabled: new(true)}},
	"spec.kataSandboxDevicePlugin": {KataSandboxDevicePlugin: &v1.KataSandboxDevicePluginSpec{Enabled: new(true)}},
	"spec.vgpuDeviceManager.config.name": {VGPUDeviceManager: &v1.VGPUDeviceManagerSpec{
		Config: &v1.VGPUDevicesConfigSpec{Name: "a"},
	}},
	"spec.sandboxWorkloads.defaultWorkload": {SandboxWorkloads: &v1.SandboxWorkloadsSpec{DefaultWorkload: "vm-vgpu"}},
	"spec.sandboxWorkloads.mode":            {SandboxWorkloads: &v1.SandboxWorkloadsSpec{Mode: "kata"}},
	"spec.validator.vfioPCI":                {Validator: &v1.ValidatorSpec{VFIOPCI: oneVariable}},
	"spec.validator.vgpuManager":            {Validator: &v1.ValidatorSpec{VGPUManager: oneVariable}},
	"spec.validator.vgpuDevices":            {Validator: &v1.ValidatorSpec{VGPUDevices: oneVariable}},
	"spec.ccManager":                        {CCManager: &v1.CCManagerSpec{Enabled: new(true)}},
	"spec.sandboxWorkloads.enabled":         {SandboxWorkloads: &v1.SandboxWorkloadsSpec{Enabled: new(true)}},
	"spec.operator.defaultRuntime":          {Operator: &v1.OperatorSpec{DefaultRuntime: "docker"}},
	"spec.operator.initContainer":           {Operator: &v1.OperatorSpec{InitContainer: &v1.ImageSpec{Version: "v1"}}},
	"spec.operator.labels":                  {Operator: &v1.OperatorSpec{Labels: v1.Labels{"a": "b"}}},
	"spec.operator.annotations":             {Operator: &v1.OperatorSpec{Annotations: v1.Annotations{"a": "b"}}},
	"spec.driver.useOpenKernelModules":      {Driver: &v1.DriverSpec{UseOpenKernelModules: new(false)}},
	"spec.driver.licensingConfig.configMapName": {Driver: &v1.DriverSpec{
		LicensingConfig: &v1.DriverLicensingConfigSpec{ConfigMapName: "licence"},
	}},
	"spec.dcgm.hostPort": {DCGM: &v1.DCGMSpec{HostPort: 5555}},
	"spec.cdi.default":   {CDI: &v1.CDISpec{Default: new(true)}},
	"spec.psp":           {PSP: &v1.PSPSpec{Enabled: new(true)}},
	"spec.kataManager":   {KataManager: &v1.KataManagerSpec{Enabled: new(true)}},
}

func TestEachFieldIsNoted(t *testing.T) {
	notes := func(spec v1.ClusterPolicySpec) []string {
		return slices.Concat(fieldnotes.Unsupported(spec), fieldnotes.Doubtful(spec), fieldnotes.Deprecated(spec))
	}
	for name, spec := range each {
		noted := slices.ContainsFunc(notes(spec), func(note string) bool { return strings.HasPrefix(note, name+": ") })
		if found := notes(spec); !noted {
			t.Errorf("%s: the notes are %q", name, found)
		}
	}
	if found := notes(v1.ClusterPolicySpec{}); len(found) > 0 {
		t.Errorf("an empty spec: the notes are %q", found)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(each)), slices.Sorted(slices.Values(fieldnotes.Fields()))); diff != "" {
		t.Errorf("-tested +reported:\n%s", diff)
	}
}
