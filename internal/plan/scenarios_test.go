package plan_test

import (
	"fmt"
	"testing"

	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// scenario is a cluster as operators meet it.
type scenario struct {
	// spec of the policy, in YAML.
	spec  string
	nodes []operand.NodeFacts
}

// nodes are so many nodes like ubuntu, named by prefix.
func nodes(prefix string, count int, change func(*operand.NodeFacts)) []operand.NodeFacts {
	var all []operand.NodeFacts
	for i := range count {
		all = append(all, changed(ubuntu(fmt.Sprintf("%s-%d", prefix, i+1)), change))
	}
	return all
}

func both(a, b []operand.NodeFacts) []operand.NodeFacts { return append(a, b...) }

var asIs = func(*operand.NodeFacts) {}

// scenarios are the clusters whose plans are told as stories.
var scenarios = map[string]scenario{
	"scenario-mixed-os": {
		nodes: both(nodes("ubuntu", 2, asIs), nodes("rhel", 2, func(f *operand.NodeFacts) { f.OSID, f.OSVersion = "rhel", "9.6" })),
	},
	"scenario-mixed-runtime": {
		nodes: both(nodes("containerd", 2, asIs), nodes("crio", 2, func(f *operand.NodeFacts) { f.Runtime, f.RuntimeVersion = "cri-o", "1.34.1" })),
	},
	"scenario-precompiled-two-kernels": {
		spec: `{driver: {usePrecompiled: true, version: "595"}}`,
		nodes: both(nodes("old", 1, func(f *operand.NodeFacts) { f.Kernel = "6.8.0-51-generic" }),
			nodes("new", 2, func(f *operand.NodeFacts) { f.Kernel = "6.8.0-60-generic" })),
	},
	"scenario-arm64-and-amd64": {
		nodes: both(nodes("amd", 1, asIs), nodes("arm", 1, func(f *operand.NodeFacts) { f.Architecture = "arm64" })),
	},
	"scenario-no-gpu-nodes": {},
	"scenario-openshift": {
		nodes: nodes("rhcos", 2, func(f *operand.NodeFacts) {
			f.OSID, f.OSVersion = "rhcos", "4.20"
			f.Runtime, f.RuntimeVersion, f.Distribution = "cri-o", "1.34.1", "openshift"
		}),
	},
	"scenario-k3s": {
		nodes: nodes("k3s", 1, func(f *operand.NodeFacts) { f.Distribution, f.RuntimeVersion = "k3s", "2.1.5-k3s1" }),
	},
	"scenario-half-pre-installed-driver": {
		nodes: both(nodes("bare", 1, asIs), nodes("imaged", 1, func(f *operand.NodeFacts) {
			f.Deploy = map[operand.Name]string{"driver": "pre-installed"}
		})),
	},
	"scenario-mig": {
		spec: `{mig: {strategy: mixed}, migManager: {config: {default: all-disabled}}}`,
		nodes: both(nodes("a100", 1, func(f *operand.NodeFacts) { f.MIGCapable = "true" }),
			nodes("t4", 1, func(f *operand.NodeFacts) { f.MIGCapable = "false" })),
	},
	"scenario-mps": {
		spec: `{devicePlugin: {config: {name: shared, default: whole}}}`,
		nodes: both(nodes("shared", 1, func(f *operand.NodeFacts) { f.MPSCapable = "true" }),
			nodes("whole", 1, func(f *operand.NodeFacts) { f.MPSCapable = "false" })),
	},
	"scenario-gds-and-rdma": {
		spec:  `{driver: {rdma: {enabled: true}}, gds: {enabled: true}, gdrcopy: {enabled: true}}`,
		nodes: nodes("node", 1, asIs),
	},
	"scenario-air-gapped-mirror": {
		spec: `{driver: {repository: mirror.local/nvidia, imagePullSecrets: [mirror]}, toolkit: {repository: mirror.local/nvidia},
  devicePlugin: {repository: mirror.local/nvidia}, gfd: {repository: mirror.local/nvidia}, dcgm: {enabled: true, repository: mirror.local/nvidia},
  dcgmExporter: {repository: mirror.local/nvidia}, nodeStatusExporter: {enabled: true}, validator: {repository: mirror.local, image: gpu-operator, version: v1}}`,
		nodes: nodes("node", 1, asIs),
	},
}

// specOf reads a spec strictly.
func specOf(t *testing.T, text string) v1.ClusterPolicySpec {
	t.Helper()
	var spec v1.ClusterPolicySpec
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	return spec
}
