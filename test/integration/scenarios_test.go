package integration

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/scenarios"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestScenariosAtRest waits until each scenario is ready. From then on the operator writes nothing, also after a
// restart. TEST_FULL=1 tries all of them, otherwise two.
func TestScenariosAtRest(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(scenarios.All))
	switch {
	case cluster.Sampled():
		names = []string{"gds-and-rdma"}
	case !cluster.FullCampaigns():
		names = chance.Sample(t, "scenarios", names, 2, chance.Itself)
	}
	atRest := 0
	for _, name := range names {
		if t.Run(name, func(t *testing.T) { scenarioAtRest(t, scenarios.All[name]) }) {
			atRest++
		}
	}
	t.Logf("scenarios at rest without a write %d/%d, of %d", atRest, len(names), len(scenarios.All))
}

func scenarioAtRest(t *testing.T, scenario scenarios.Scenario) {
	e := newEnv(t, envOptions{timing: simulator.DefaultTiming().Scale(0.1)})
	spec, err := scenario.PolicySpec()
	e.Expect(err).NotTo(HaveOccurred())
	machines := []simulator.NodeSpec{{Name: "without-gpu", NoGPU: true}}
	for _, facts := range scenario.Nodes {
		machines = append(machines, machine(facts))
	}
	for _, machine := range machines {
		_, err := e.sim.AddNode(t.Context(), machine)
		e.Expect(err).NotTo(HaveOccurred())
	}
	if scenario.DriverToolkit != nil {
		e.serveDriverToolkit(scenario.DriverToolkit)
	}
	e.createReferences(spec)
	e.run()
	e.create(&v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy}, Spec: spec})
	e.awaitReady(len(scenario.Nodes))
	e.settled()
	e.quietFor("at rest", 10*time.Second)
	e.stop()
	mark := e.mark()
	e.run()
	e.quietSince("restart", mark, 5*time.Second)
}

// createReferences creates the ConfigMaps and Secrets that a spec names, with the keys that operands read.
func (e *env) createReferences(spec v1.ClusterPolicySpec) {
	e.t.Helper()
	catalogue, err := operands.Catalogue()
	e.Expect(err).NotTo(HaveOccurred())
	data := map[operand.Reference]map[string]string{}
	input := operand.Input{Spec: effective.Of(spec), Namespace: namespace}
	var uses []operand.Use
	for i := range catalogue {
		uses = append(uses, catalogue[i].UsesOf(input)...)
		for _, pool := range operand.NodePools(input.Spec) {
			uses = append(uses, catalogue[i].UsesOf(input.ForNodePool(pool))...)
		}
	}
	for _, use := range uses {
		if data[use.Reference] == nil {
			data[use.Reference] = map[string]string{}
		}
		for _, key := range use.Keys {
			data[use.Reference][key] = "version: v1"
		}
	}
	for reference, content := range data {
		meta := metav1.ObjectMeta{Name: reference.Name, Namespace: namespace}
		switch reference.Kind {
		case operand.ConfigMap:
			e.create(&corev1.ConfigMap{ObjectMeta: meta, Data: content})
		case operand.Secret:
			e.create(&corev1.Secret{ObjectMeta: meta, StringData: content})
		case operand.PriorityClass:
			e.t.Fatalf("the scenario refers to %s: create it here", reference)
		case operand.ValidatingAdmissionPolicyBinding: // The installer creates it.
		}
	}
}

// machine returns a simulated node with these facts.
func machine(facts nodeinfo.Facts) simulator.NodeSpec {
	spec := simulator.NodeSpec{
		Name: facts.Name, OS: facts.OSID, OSVersion: facts.OSVersion, Kernel: facts.Kernel, Arch: facts.Architecture,
		Runtime:      facts.Runtime + "://" + cmp.Or(facts.RuntimeVersion, "2.1.4"),
		DriverOnHost: facts.Deploy["driver"] == labels.DeployPreInstalled,
		Labels:       map[string]string{},
	}
	maps.Copy(spec.Labels, facts.Labels)
	for key, value := range map[string]string{
		labels.MIGCapable: facts.MIGCapable, labels.MPSCapable: facts.MPSCapable, labels.DiscoveryOSTree: facts.OSTree,
	} {
		if value != "" {
			spec.Labels[key] = value
		}
	}
	for name, value := range facts.Deploy {
		spec.Labels[labels.DeployPrefix+name] = value
	}
	switch facts.Distribution {
	case "k3s":
		spec.Kubelet = "v1.36.3+k3s1"
	case "openshift":
		spec.Labels["node.openshift.io/os_id"] = facts.OSID
	}
	return spec
}
