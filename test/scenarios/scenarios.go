package scenarios

import (
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
)

// Scenario is a typical cluster.
type Scenario struct {
	// Spec of the policy, in YAML.
	Spec string
	// Nodes of the cluster that have GPUs.
	Nodes []nodeinfo.Facts
	// DriverToolkit has the images of OpenShift's driver toolkit; nil if there is no ImageStream.
	DriverToolkit map[string]string
}

// PolicySpec decodes Spec strictly.
func (s Scenario) PolicySpec() (v1.ClusterPolicySpec, error) {
	spec := v1.ClusterPolicySpec{}
	err := yaml.UnmarshalStrict([]byte(s.Spec), &spec)
	return spec, err
}

// Ubuntu returns a GPU node with Ubuntu.
func Ubuntu(name string) nodeinfo.Facts {
	return nodeinfo.Facts{
		Name: name, HasGPU: true, HasDiscoveryLabels: true, Workload: nodeinfo.WorkloadContainer, Runtime: nodeinfo.RuntimeContainerd,
		OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64", Deploy: map[string]string{},
	}
}

// nodes returns n nodes like Ubuntu, named by prefix.
func nodes(prefix string, count int, change func(*nodeinfo.Facts)) []nodeinfo.Facts {
	var all []nodeinfo.Facts
	for i := range count {
		node := Ubuntu(fmt.Sprintf("%s-%d", prefix, i+1))
		change(&node)
		all = append(all, node)
	}
	return all
}

func both(a, b []nodeinfo.Facts) []nodeinfo.Facts { return append(a, b...) }

var asIs = func(*nodeinfo.Facts) {}

// coreOS returns an OpenShift node with this version and release of Red Hat CoreOS.
func coreOS(version, release string) func(*nodeinfo.Facts) {
	return func(f *nodeinfo.Facts) {
		f.OSID, f.OSVersion, f.OSTree = "rhcos", version, release
		f.Runtime, f.RuntimeVersion, f.Distribution = "cri-o", "1.34.1", "openshift"
	}
}

// inPool sets the label that a node pool selects.
func inPool(key, value string) func(*nodeinfo.Facts) {
	return func(f *nodeinfo.Facts) { f.Labels = map[string]string{"example.com/" + key: value} }
}

// All returns all scenarios by name.
var All = map[string]Scenario{
	"mixed-os": {
		Nodes: both(nodes("ubuntu", 2, asIs),
			nodes("rhel", 2, func(f *nodeinfo.Facts) { f.OSID, f.OSVersion = "rhel", "9.6" })),
	},
	"mixed-runtime": {
		Nodes: both(nodes("containerd", 2, asIs),
			nodes("crio", 2, func(f *nodeinfo.Facts) { f.Runtime, f.RuntimeVersion = "cri-o", "1.34.1" })),
	},
	"precompiled-two-kernels": {
		Spec: `{driver: {usePrecompiled: true, version: "595"}}`,
		Nodes: both(nodes("old", 1, func(f *nodeinfo.Facts) { f.Kernel = "6.8.0-51-generic" }),
			nodes("new", 2, func(f *nodeinfo.Facts) { f.Kernel = "6.8.0-60-generic" })),
	},
	"arm64-and-amd64": {
		Nodes: both(nodes("amd", 1, asIs), nodes("arm", 1, func(f *nodeinfo.Facts) { f.Architecture = "arm64" })),
	},
	"no-gpu-nodes": {},
	"openshift": {
		Nodes: both(nodes("old", 2, coreOS("4.17", "417.94.202503172034-0")),
			nodes("new", 1, coreOS("4.18", "418.94.202501221327-0"))),
		DriverToolkit: map[string]string{
			"417.94.202503172034-0": "example.com/driver-toolkit:417", "418.94.202501221327-0": "example.com/driver-toolkit:418",
		},
	},
	"k3s": {
		Nodes: nodes("k3s", 1, func(f *nodeinfo.Facts) { f.Distribution, f.RuntimeVersion = "k3s", "2.1.5-k3s1" }),
	},
	"half-pre-installed-driver": {
		Nodes: both(nodes("bare", 1, asIs), nodes("imaged", 1, func(f *nodeinfo.Facts) {
			f.Deploy = map[string]string{"driver": "pre-installed"}
		})),
	},
	"mig": {
		Spec: `{mig: {strategy: mixed}, migManager: {config: {default: all-disabled}}}`,
		Nodes: both(nodes("a100", 1, func(f *nodeinfo.Facts) { f.MIGCapable = "true" }),
			nodes("t4", 1, func(f *nodeinfo.Facts) { f.MIGCapable = "false" })),
	},
	"mps": {
		Spec: `{devicePlugin: {config: {name: shared, default: whole}}}`,
		Nodes: both(nodes("shared", 1, func(f *nodeinfo.Facts) { f.MPSCapable = "true" }),
			nodes("whole", 1, func(f *nodeinfo.Facts) { f.MPSCapable = "false" })),
	},
	"node-pools": {
		Spec: `{nodePools: [
  {name: a100, nodeSelector: {example.com/gpu: a100}, driver: {version: 590.44.01, kernelModuleType: open}, mig: {strategy: mixed},
    migManager: {config: {default: all-disabled}}},
  {name: legacy, nodeSelector: {example.com/gpu: v100}, driver: {version: 535.230.02, kernelModuleType: proprietary}, toolkit: {version: v1.17.8}},
  {name: shared, nodeSelector: {example.com/team: research}, devicePlugin: {config: {name: shares, default: four}}}]}`,
		Nodes: slices.Concat(nodes("plain", 1, asIs), nodes("a100", 1, inPool("gpu", "a100")),
			nodes("a100-older", 1, func(f *nodeinfo.Facts) {
				inPool("gpu", "a100")(f)
				f.OSVersion, f.MIGCapable = "22.04", "true"
			}), nodes("legacy", 1, func(f *nodeinfo.Facts) {
				inPool("gpu", "v100")(f)
				f.Runtime, f.RuntimeVersion = "cri-o", "1.34.1"
			}), nodes("shared", 1, func(f *nodeinfo.Facts) {
				inPool("team", "research")(f)
				f.MPSCapable = "true"
			})),
	},
	"gds-and-rdma": {
		Spec:  `{driver: {rdma: {enabled: true}}, gds: {enabled: true}, gdrcopy: {enabled: true}}`,
		Nodes: nodes("node", 1, asIs),
	},
	"air-gapped-mirror": {
		Spec: `{driver: {repository: mirror.local/nvidia, imagePullSecrets: [mirror]}, toolkit: {repository: mirror.local/nvidia},
  devicePlugin: {repository: mirror.local/nvidia}, gfd: {repository: mirror.local/nvidia}, dcgm: {enabled: true, repository: mirror.local/nvidia},
  dcgmExporter: {repository: mirror.local/nvidia}, nodeStatusExporter: {enabled: true}, validator: {repository: mirror.local, image: gpu-operator, version: v1}}`,
		Nodes: nodes("node", 1, asIs),
	},
}
