package fieldnotes_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/fieldnotes"
)

// What is set and cannot work as it is written is noted, with what to do instead; what works is not.
func TestFieldsThatCannotWork(t *testing.T) {
	const slices = "devicePlugin: {env: [{name: DEVICE_LIST_STRATEGY, value: 'envvar,volume-mounts'}]}"
	const accepts = "toolkit: {env: [{name: ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS, value: 'true'}]}"
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
