package manifests

import (
	"maps"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
	"github.com/clusterpolicy/gpu-operator/test/scenarios"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// helper is the operator's image in a release.
const helper = "ghcr.io/clusterpolicy/gpu-operator:v1.0.0"

// runs returns a node with this container runtime, whose GPUs support MIG and sharing.
func runs(runtime, release string, distribution nodeinfo.Distribution) nodeinfo.Facts {
	node := scenarios.Ubuntu(runtime + string(distribution))
	node.Runtime, node.RuntimeVersion, node.Distribution = runtime, release, distribution
	node.MIGCapable, node.MPSCapable = "true", "true"
	return node
}

// everything is the cluster in which all operands are enabled.
const everything = "everything"

// clusters adds scenarios in which the operands have more than by default.
var clusters = map[string]scenarios.Scenario{
	everything: {
		Spec: `{
  driver: {rdma: {enabled: true, useHostMofed: true}, repoConfig: {configMapName: repos}, certConfig: {name: certificates},
    licensingConfig: {secretName: licence, nlsEnabled: true}, virtualTopology: {config: topology}, kernelModuleConfig: {name: parameters},
    secretEnv: environment, livenessProbe: {periodSeconds: 30}, readinessProbe: {periodSeconds: 30}},
  gds: {enabled: true}, gdrcopy: {enabled: true}, dcgm: {enabled: true}, mig: {strategy: mixed},
  dcgmExporter: {enablePodLabels: true, enablePodUID: true, hostPID: true, hostNetwork: true, hpcJobMapping: {enabled: true},
    config: {name: metrics}, serviceMonitor: {enabled: true}},
  nodeStatusExporter: {enabled: true, serviceMonitor: {enabled: true}},
  devicePlugin: {config: {name: shared, default: whole}},
  migManager: {config: {name: layouts}, gpuClientsConfig: {name: clients}},
  validator: {plugin: {env: [{name: WITH_WORKLOAD, value: "true"}]}},
  global: {imagePullSecrets: [mirror], caBundle: {configMapName: authorities}, proxy: {httpsProxy: "http://proxy.example.com:3128"}}
}`,
		Nodes: []nodeinfo.Facts{runs(nodeinfo.RuntimeContainerd, "2.1.4", "")},
	},
	"a driver and a toolkit of the host's own": {
		Spec:  `{driver: {enabled: false}, toolkit: {enabled: false}}`,
		Nodes: []nodeinfo.Facts{runs(nodeinfo.RuntimeContainerd, "2.1.4", "")},
	},
	"Node Feature Discovery": {
		Spec:  `{nodeDiscovery: {mode: nfd}}`,
		Nodes: []nodeinfo.Facts{runs(nodeinfo.RuntimeContainerd, "2.1.4", "")},
	},
	"the Node Resource Interface": {
		Spec: `{cdi: {nriPluginEnabled: true}}`,
		Nodes: []nodeinfo.Facts{
			runs(nodeinfo.RuntimeContainerd, "2.1.4", ""),
			runs(nodeinfo.RuntimeCRIO, "1.34.1", ""),
		},
	},
	"no Container Device Interface": {
		Spec:  `{cdi: {enabled: false}}`,
		Nodes: []nodeinfo.Facts{runs(nodeinfo.RuntimeCRIO, "1.34.1", "")},
	},
	"all runtimes": {
		Nodes: []nodeinfo.Facts{
			runs(
				nodeinfo.RuntimeContainerd,
				"2.1.4",
				"",
			), runs(nodeinfo.RuntimeCRIO, "1.34.1", ""), runs(nodeinfo.RuntimeDocker,
				"28.3.3", ""),
			runs(
				nodeinfo.RuntimeContainerd,
				"2.1.4",
				"microk8s",
			), runs(nodeinfo.RuntimeContainerd, "2.1.5-k3s1", "rke2"),
			runs(nodeinfo.RuntimeContainerd, "2.1.4", "k0s"), runs(nodeinfo.RuntimeContainerd, "2.1.4", "gke"),
			runs(nodeinfo.RuntimeContainerd, "2.3.0", "containerd-file"),
		},
	},
}

// operandSources returns what the operator applies in each scenario and cluster. Together they have every operand of
// the catalogue.
func operandSources(t *testing.T) []source {
	t.Helper()
	g := NewWithT(t)
	catalogue, err := operands.Catalogue()
	g.Expect(err).NotTo(HaveOccurred())
	missing := map[operand.Name]bool{}
	for _, op := range catalogue {
		missing[op.Name] = true
	}
	all := maps.Clone(scenarios.All)
	maps.Copy(all, clusters)
	var found []source
	for _, name := range slices.Sorted(maps.Keys(all)) {
		scenario := all[name]
		spec, err := scenario.PolicySpec()
		g.Expect(err).NotTo(HaveOccurred(), name)
		if name == everything {
			specgen.EnableAll(&spec)
		}
		input := operand.Input{
			Spec: effective.Of(spec), Namespace: namespace, OperatorImage: helper, DriverToolkit: scenario.DriverToolkit,
			Optional: map[operand.OptionalKind]bool{operand.ServiceMonitor: true, operand.PrometheusRule: true},
		}
		computed := plan.Compute(plan.Decide(catalogue, input), input.Optional, scenario.Nodes)
		rendered := source{name: "operands: " + name}
		for _, step := range computed.Steps {
			g.Expect(step.State).NotTo(Equal(v1.OperandInvalid), "%s: %s", name, step.Message)
			if step.Action == plan.Apply {
				rendered.objects = append(rendered.objects, applied(g, computed, step)...)
				delete(missing, step.Operand.Name)
			}
		}
		found = append(found, rendered)
	}
	g.Expect(missing).To(BeEmpty(), "these operands are never rendered")
	return found
}

// applied returns the objects of a step as the operator applies them.
func applied(g *WithT, computed plan.Plan, step plan.Step) []*unstructured.Unstructured {
	objects, err := render.Step(computed, step,
		render.Owner{Name: "cluster-policy", UID: "11111111-2222-3333-4444-555555555555"}, nil)
	g.Expect(err).NotTo(HaveOccurred(), "%s", step.Operand.Name)
	var intents []*unstructured.Unstructured
	for _, object := range objects {
		intent, err := apply.Intent(object)
		g.Expect(err).NotTo(HaveOccurred(), "%s", step.Operand.Name)
		intents = append(intents, intent)
	}
	return intents
}
