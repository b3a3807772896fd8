package main

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestValidate(t *testing.T) {
	policy := func(spec string) string {
		return "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec: " + spec + "\n---\n"
	}
	configMap := func(data string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: " + data + "\n---\n"
	}
	const driver = "apiVersion: nvidia.com/v1alpha1\nkind: NVIDIADriver\nmetadata: {name: d}\nspec: {driverType: other}\n"
	tests := map[string]struct {
		in   string
		code int
		// out and errOut are parts of what is printed.
		out, errOut string
	}{
		"valid": {policy("{driver: {version: 580.95.05}}"), 0, "1 of 1 objects are valid.", ""},
		"a wrong value": {policy("{mig: {strategy: double}}"), 1, "ClusterPolicy p: spec.mig.strategy: Unsupported value",
			"1 of 1"},
		"a wrong value, which keeps rules from being checked": {
			policy("{mig: {strategy: double}, daemonsets: {rollingUpdate: {maxUnavailable: 0}}}"), 1,
			"ClusterPolicy p: note: rules about several fields were not checked: correct the errors, and check again", "1 of 1",
		},
		"no name": {
			"apiVersion: nvidia.com/v1\nkind: ClusterPolicy\n", 1, "metadata.name: Required value", "1 of 1",
		},
		"a wrong name": {
			"apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: Policy}\n", 1,
			"metadata.name: Invalid value", "1 of 1",
		},
		"a generated name": {
			"apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {generateName: p-}\n", 0, "1 of 1", "",
		},
		"a ConfigMap with a value that is no text": {
			policy("{}") + configMap("{a: 5}"), 1,
			"ConfigMap c: json: cannot unmarshal number into Go struct field ConfigMap.data of type string", "1 of 2",
		},
		"a ConfigMap with texts": {
			policy("{}") + configMap("{a: '5', b: \"true\"}"), 0, "1 of 1 objects are valid.", "",
		},
		"a ConfigMap with an unknown key": {
			policy("{}") + configMap("{}\nfiles: {}"), 1, `ConfigMap c: unknown field "files"`, "1 of 2",
		},
		"a label that is no text": {
			"apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: p, labels: {team: 5}}\n", 1,
			"ClusterPolicy p: metadata: Invalid value", "1 of 1",
		},
		"an annotation that is no text": {
			"apiVersion: nvidia.com/v1alpha1\nkind: NVIDIADriver\nmetadata: {name: d, annotations: {a: true}}\n", 1,
			"NVIDIADriver d: metadata: Invalid value", "1 of 1",
		},
		"an unknown field of the metadata": {
			"apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: p, label: {team: a}}\n", 1,
			"ClusterPolicy p: metadata.label: unknown field", "1 of 1",
		},
		"a prefix of a name that is wrong": {
			"apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {generateName: P-}\n", 1,
			"metadata.name: Invalid value", "1 of 1",
		},
		"a wrong type": {policy("{driver: {env: 3}}"), 1, "ClusterPolicy p: spec.driver.env: Invalid value", "1 of 1"},
		"a number that is too large, named once": {
			policy("{dcgm: {hostPort: 3000000000}}"), 1, "ClusterPolicy p: spec.dcgm.hostPort: Invalid value: 3000000000: " +
				"spec.dcgm.hostPort in body should be less than or equal to 65535\n", "1 of 1",
		},
		"a number that no type has": {
			policy("{dcgm: {hostPort: 1e20}}"), 1, "ClusterPolicy p: spec.dcgm.hostPort: Invalid value: ", "1 of 1",
		},
		"what is no quantity": {
			policy("{gfd: {resources: {limits: {memory: 10GB}}}}"), 1, "ClusterPolicy p: spec.gfd.resources.limits.memory: " +
				`Invalid value: "10GB": is no quantity such as 500m, 2 or 4Gi, with at most 20 digits on each side of the ` +
				"point and an exponent of at most 18\n", "1 of 1",
		},
		"a map for an image": {
			policy("{operator: {initContainer: {image: {repository: nvcr.io/nvidia, tag: v1}}}}"), 1,
			"set spec.operator.initContainer.repository, spec.operator.initContainer.image and " +
				"spec.operator.initContainer.version, each to a text", "1 of 1",
		},
		"a map for the image of an NVIDIADriver": {
			"apiVersion: nvidia.com/v1alpha1\nkind: NVIDIADriver\nmetadata: {name: d}\nspec: {image: {name: a}}\n", 1,
			"set spec.repository, spec.image and spec.version, each to a text", "1 of 1",
		},
		"a broken rule":  {policy("{daemonsets: {rollingUpdate: {maxUnavailable: 0}}}"), 1, "must be above 0", "1 of 1"},
		"unknown fields": {policy("{driver: {versions: a}}"), 1, "spec.driver.versions: unknown field", "1 of 1"},
		"a field twice":  {policy("{mig: {strategy: single}, mig: {strategy: mixed}}"), 1, `key "mig" already set`, "1 of 1"},
		"of two one":     {policy("{}") + driver, 1, "NVIDIADriver d: spec", "1 of 2"},
		"another version": {
			"apiVersion: nvidia.com/v2\nkind: ClusterPolicy\nmetadata: {name: p}\n", 1, "nvidia.com/v2 is not served", "1 of 1",
		},
		"what no pod can have": {
			policy("{gfd: {resources: {requests: {example.com/nic: 1}}}}"), 1,
			"ClusterPolicy p: spec.gfd.resources.requests[example.com/nic]: needs the same limit", "1 of 1",
		},
		"what no pod can have, of an operand that is not installed": {
			policy("{dcgm: {enabled: false, resources: {requests: {example.com/nic: 1}}}, " +
				"gfd: {enabled: false, tolerations: [{key: a..b/c}]}}"), 0,
			"note: spec.dcgm.resources.requests[example.com/nic]: needs the same limit, as Kubernetes does not overcommit it: " +
				"add it to limits; nothing of spec.dcgm is installed", "",
		},
		"what no pod can have, of an operand that is not installed by default": {
			policy("{dcgm: {resources: {requests: {example.com/nic: 1}}}}"), 0, "; nothing of spec.dcgm is installed", "",
		},
		"resources of a container that no pod has": {
			policy("{gfd: {containerResources: [{name: gpu-feature-discover}]}}"), 1,
			"ClusterPolicy p: spec.gfd.containerResources: there is no container gpu-feature-discover, only " +
				"gpu-feature-discovery, gpu-node-wait\n", "1 of 1",
		},
		"resources of containers that pods have, on some nodes or of an operand beside": {
			policy("{daemonsets: {nodeSelector: {a: b}}, devicePlugin: {config: {name: c}, containerResources: " +
				"[{name: config-manager}, {name: mps-control-daemon-ctr}]}, gdrcopy: {enabled: true}, driver: " +
				"{containerResources: [{name: nvidia-gdrcopy-ctr}, {name: openshift-driver-toolkit-ctr}]}}"), 0,
			"1 of 1 objects are valid.", "",
		},
		"resources of a container that the spec does not enable": {
			policy("{driver: {containerResources: [{name: nvidia-gdrcopy-ctr}]}}"), 1,
			"spec.driver.containerResources: there is no container nvidia-gdrcopy-ctr, only ", "1 of 1",
		},
		"resources of a container of what is not installed": {
			policy("{dcgm: {containerResources: [{name: a}]}}"), 0, "1 of 1 objects are valid.", "",
		},
		"what no pod of a driver can have": {
			"apiVersion: nvidia.com/v1alpha1\nkind: NVIDIADriver\nmetadata: {name: d}\n" +
				"spec: {tolerations: [{key: a..b/c}]}\n", 1, `NVIDIADriver d: spec.tolerations[0].key: "a..b/c" is not a key`,
			"1 of 1",
		},
		"a note":         {policy("{operator: {defaultRuntime: docker}}"), 0, "note: spec.operator.defaultRuntime", ""},
		"another object": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n", 1, "", "found no ClusterPolicy"},
		"no YAML":        {"a: [", 1, "", "reading -"},
		"a list": {
			"apiVersion: v1\nkind: List\nitems: [{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: p}, " +
				"spec: {mig: {strategy: x}}}]\n", 1, "ClusterPolicy p: spec.mig.strategy", "1 of 1",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, got := NewWithT(t), kubectlGPU(test.in, "validate", "-f", "-")
			g.Expect(got.code).To(Equal(test.code), "%s%s", got.out, got.errOut)
			g.Expect(got.out).To(ContainSubstring(test.out))
			g.Expect(got.out).NotTo(ContainSubstring("nil"), "an error has a field")
			g.Expect(got.errOut).To(ContainSubstring(test.errOut))
		})
	}
}
