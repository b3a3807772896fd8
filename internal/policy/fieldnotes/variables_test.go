package fieldnotes_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/fieldnotes"
)

// What is set and cannot work as it is written is noted, with what to do instead; what works is not.
func TestFieldsThatCannotWork(t *testing.T) {
	const slices = "devicePlugin: {env: [{name: DEVICE_LIST_STRATEGY, value: 'envvar,volume-mounts'}]}"
	const accepts = "toolkit: {env: [{name: ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS, value: 'true'}]}"
	const mig = "sharing: {timeSlicing: {resourceReplicas: [{name: nvidia.com/mig-1g.10gb, replicas: 4}]}}"
	for name, test := range map[string]struct{ spec, note string }{
		"a metrics file beside the configured one": {
			"{dcgmExporter: {config: {name: a}, env: [{name: DCGM_EXPORTER_COLLECTORS, value: /etc/dcgm-exporter/x.csv}]}}",
			"spec.dcgmExporter.env: DCGM_EXPORTER_COLLECTORS names another file",
		},
		"the configured metrics file": {"{dcgmExporter: {config: {name: a}, " +
			"env: [{name: DCGM_EXPORTER_COLLECTORS, value: /etc/dcgm-exporter/dcgm-metrics.csv}]}}", ""},
		"a metrics file of the image": {
			"{dcgmExporter: {env: [{name: DCGM_EXPORTER_COLLECTORS, value: /etc/dcgm-exporter/default-counters.csv}]}}", "",
		},
		"metrics beside the configured file": {
			"{dcgmExporter: {config: {name: a}, env: [{name: DCGM_EXPORTER_CONFIGMAP_DATA, value: 'a:b'}]}}",
			"spec.dcgmExporter.env: DCGM_EXPORTER_CONFIGMAP_DATA takes the place of spec.dcgmExporter.config",
		},
		"no metrics beside it": {
			"{dcgmExporter: {config: {name: a}, env: [{name: DCGM_EXPORTER_CONFIGMAP_DATA, value: none}]}}", "",
		},
		"metrics alone": {"{dcgmExporter: {env: [{name: DCGM_EXPORTER_CONFIGMAP_DATA, value: 'a:b'}]}}", ""},
		"a directory of jobs that is not mounted": {
			"{dcgmExporter: {env: [{name: DCGM_HPC_JOB_MAPPING_DIR, value: /jobs}]}}",
			"spec.dcgmExporter.env: DCGM_HPC_JOB_MAPPING_DIR names a directory that is not mounted",
		},
		"the directory of jobs": {"{dcgmExporter: {hpcJobMapping: {enabled: true, directory: /jobs}, " +
			"env: [{name: DCGM_HPC_JOB_MAPPING_DIR, value: /jobs}]}}", ""},
		"a directory of MPS that is not mounted": {
			"{devicePlugin: {env: [{name: MPS_ROOT, value: /a}]}}", "spec.devicePlugin.env: MPS_ROOT names a directory",
		},
		"the directory of MPS": {"{devicePlugin: {mps: {root: /a}, env: [{name: MPS_ROOT, value: /a}]}}", ""},
		"the handler of no RuntimeClass": {"{toolkit: {env: [{name: NVIDIA_RUNTIME_NAME, value: a}]}}",
			"spec.toolkit.env: NVIDIA_RUNTIME_NAME is the handler of no RuntimeClass: set spec.operator.runtimeClass"},
		"the handler of a RuntimeClass": {"{toolkit: {env: [{name: CONTAINERD_RUNTIME_CLASS, value: nvidia}]}}", ""},
		"a root that is not mounted": {"{toolkit: {env: [{name: ROOT, value: /a}]}}",
			"spec.toolkit.env: ROOT names a directory that is not mounted: set spec.toolkit.installDir"},
		"the root": {"{toolkit: {installDir: /a, env: [{name: ROOT, value: /a}]}}", ""},
		"a directory of CDI that is not mounted": {"{toolkit: {env: [{name: CDI_OUTPUT_DIR, value: /etc/cdi}]}}",
			"spec.toolkit.env: CDI_OUTPUT_DIR names a directory that is not mounted: remove it"},
		"the directory of CDI": {"{toolkit: {env: [{name: CDI_OUTPUT_DIR, value: /var/run/cdi}]}}", ""},
		"pods that end": {"{gfd: {env: [{name: GFD_ONESHOT, value: 'true'}]}}",
			"spec.gfd.env: GFD_ONESHOT ends the pods after each run"},
		"pods that do not end": {"{gfd: {env: [{name: GFD_ONESHOT, value: 'false'}]}}", ""},
		"a strategy beside spec.mig": {"{gfd: {env: [{name: MIG_STRATEGY, value: mixed}]}}",
			"spec.gfd.env: MIG_STRATEGY is not read by all that depends on it: set spec.mig.strategy"},
		"the strategy of spec.mig": {"{mig: {strategy: mixed}, gfd: {env: [{name: MIG_STRATEGY, value: mixed}]}}", ""},
		"a branch of drivers":      {"{driver: {version: '580'}}", "spec.driver.version: is a branch, by which NVIDIA"},
		"a branch in NVIDIA's registry": {
			"{driver: {repository: nvcr.io/nvidia, version: '580'}}", "spec.driver.version: is a branch",
		},
		"a branch in another registry":    {"{driver: {repository: mirror.local, version: '580'}}", ""},
		"a branch of precompiled drivers": {"{driver: {usePrecompiled: true, version: '580'}}", ""},
		"a whole version of the driver":   {"{driver: {version: 580.95.05}}", ""},
		"pods that a drain evicts": {
			"{driver: {upgradePolicy: {drain: {enable: true, podSelector: a=b}}}}", "",
		},
		"a tag of NVIDIA's registry without v": {
			"{toolkit: {repository: nvcr.io/nvidia/k8s, version: 1.20.0}}", "spec.toolkit.version: is 1.20.0",
		},
		"pod labels that are not decided": {
			"{dcgmExporter: {enablePodLabels: true, podLabelAllowlistRegex: [a]}}", "",
		},
		"volume mounts that the toolkit does not accept": {
			"{" + slices + "}", "spec.devicePlugin.env: DEVICE_LIST_STRATEGY has volume-mounts",
		},
		"volume mounts that it accepts": {"{" + slices + ", " + accepts + "}", ""},
		"the validator's driver root": {
			"{validator: {driver: {env: [{name: DRIVER_ROOT, value: /a}]}}}",
			"spec.validator.driver.env: DRIVER_ROOT is not read: set spec.hostPaths.driverInstallDir",
		},
		"a variable of all checks": {
			"{validator: {env: [{name: WITH_WAIT, value: 'false'}]}}", "spec.validator.env: WITH_WAIT is not read",
		},
		"a variable that the validator reads": {
			"{validator: {plugin: {env: [{name: WITH_WORKLOAD, value: 'true'}]}}}", "",
		},
		"a number for a duration": {
			"{validator: {driver: {env: [{name: FAIL_AFTER, value: '300'}]}}}",
			"spec.validator.driver.env: FAIL_AFTER is no duration, so that the check ends at its start: set one, such as 5m",
		},
		"a duration":        {"{validator: {env: [{name: FAIL_AFTER, value: 300s}]}}", ""},
		"an empty duration": {"{validator: {env: [{name: FAIL_AFTER}]}}", ""},
		"a word for a boolean": {
			"{validator: {plugin: {env: [{name: WITH_WORKLOAD, value: 'yes'}]}}}",
			"spec.validator.plugin.env: WITH_WORKLOAD is neither true nor false",
		},
		"a word for a boolean of all checks": {
			"{validator: {env: [{name: DISABLE_DEV_CHAR_SYMLINK_CREATION, value: 'on'}]}}",
			"spec.validator.env: DISABLE_DEV_CHAR_SYMLINK_CREATION is neither true nor false",
		},
		"replicas of MIG devices without a strategy": {
			"{" + mig + "}", "spec.sharing.timeSlicing.resourceReplicas: names MIG devices",
		},
		"replicas of MIG devices with the strategy mixed": {"{mig: {strategy: mixed}, " + mig + "}", ""},
		"a node pool with the strategy mixed": {
			"{" + mig + ", nodePools: [{name: a, nodeSelector: {team: a}, mig: {strategy: mixed}}]}", "",
		},
		"replicas of MIG devices in a node pool": {
			"{mig: {strategy: single}, nodePools: [{name: a, nodeSelector: {team: a}, " + mig + "}]}",
			"spec.nodePools[].sharing.timeSlicing.resourceReplicas: names MIG devices",
		},
		"the same name elsewhere": {"{toolkit: {env: [{name: DRIVER_ROOT, value: /a}]}}", ""},
		"pod labels of which none is read": {
			"{dcgmExporter: {env: [{name: DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX, value: a}]}}",
			"spec.dcgmExporter.env: DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX has no effect without",
		},
		"pod labels that are read": {"{dcgmExporter: {enablePodLabels: true, " +
			"env: [{name: DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX, value: a}]}}", ""},
		"a tag without v": {
			"{toolkit: {version: 1.20.0}}", "spec.toolkit.version: is 1.20.0, but NVIDIA's tags begin with v: set v1.20.0",
		},
		"a tag of another registry": {"{toolkit: {repository: mirror.local, image: toolkit, version: 1.20.0}}", ""},
		"a tag with v":              {"{toolkit: {version: v1.20.0}}", ""},
		"a full reference":          {"{toolkit: {image: 'mirror.local/toolkit:1.20.0'}}", ""},
		"a device plugin for virtual machines": {
			"{sandboxDevicePlugin: {enabled: true}}", "spec.sandboxDevicePlugin: has no effect without sandboxWorkloads",
		},
		"all that NVIDIA's chart turns on for virtual machines": {
			"{sandboxDevicePlugin: {enabled: true}, vfioManager: {enabled: true}, vgpuDeviceManager: {enabled: true}}", "",
		},
		"a foreign image": {
			"{validator: {repository: mirror.local, image: nvidia, version: gpu-operator-validator-v24.9.2}}",
			"spec.validator: names the image of NVIDIA's operator",
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := v1.ClusterPolicySpec{}
			if err := yaml.UnmarshalStrict([]byte(test.spec), &spec); err != nil {
				t.Fatal(err)
			}
			found := fieldnotes.Doubtful(spec)
			switch {
			case test.note == "" && len(found) > 0:
				t.Errorf("reported: %q", found)
			case test.note != "" && (len(found) != 1 || !strings.HasPrefix(found[0], test.note)):
				t.Errorf("reported: %q, want %q", found, test.note)
			}
		})
	}
}
