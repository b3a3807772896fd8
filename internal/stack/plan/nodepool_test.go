package plan_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

const ownLabel = "nvidia.com/gpu-operator."

// allFields is a pool that overrides every operand that a pool can.
var allFields = v1.NodePoolSpec{
	Name: "a100", NodeSelector: v1.NodePoolSelector{"team": "a"},
	Driver:  &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{Version: "590.44.01"}},
	Toolkit: &v1.NodePoolToolkitSpec{ImageSpec: v1.ImageSpec{Version: "v2"}},
	MIG:     &v1.MIGSpec{Strategy: v1.MIGStrategyMixed},
}

func withPools(pools ...v1.NodePoolSpec) operand.Input {
	return operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{NodePools: pools})}
}

func TestNodePoolLabels(t *testing.T) {
	member := func(change func(*nodeinfo.Facts)) nodeinfo.Facts {
		facts := withLabels(ubuntu("a"), "team", "a")
		facts.Pool = "ubuntu24.04-amd64"
		change(&facts)
		return facts
	}
	unchanged := func(*nodeinfo.Facts) {}
	own := map[string]*string{
		ownLabel + "node-pool":                       set("a100"),
		ownLabel + "node-pool.container-toolkit":     set("a100"),
		ownLabel + "node-pool.device-plugin":         set("a100"),
		ownLabel + "node-pool.gpu-feature-discovery": set("a100"), ownLabel + "node-pool.mps-control-daemon": set("a100"),
		ownLabel + "node-pool.operator-validator": set("a100"), anchor + "container-toolkit": set("containerd-a100"),
	}
	driver := map[string]*string{
		ownLabel + "pool":           set("ubuntu24.04-amd64-a100"),
		ownLabel + "pool-node-pool": set("a100"),
		anchor + "driver":           set("ubuntu24.04-amd64-a100"),
	}
	withoutPool := map[string]*string{}
	for key := range own {
		withoutPool[key] = removed
	}
	withoutPool[anchor+"container-toolkit"] = set("containerd")
	moved := after(labelled(nil), merged(own, driver))
	in := func(facts *nodeinfo.Facts) {
		facts.Pool, facts.PoolNodePool, facts.NodePool = "ubuntu24.04-amd64-a100", "a100", "a100"
	}
	wrongToolkit := allFields
	wrongToolkit.Toolkit = &v1.NodePoolToolkitSpec{ImageSpec: v1.ImageSpec{Image: "example.com/t:1", Version: "2"}}
	wrongDriver := allFields
	wrongDriver.Driver = &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{Image: "example.com/d:1", Version: "2"}}
	tests := map[string]struct {
		pools       []v1.NodePoolSpec
		facts       nodeinfo.Facts
		current     map[string]string
		driverReady bool
		want        map[string]*string
	}{
		"a node of no pool gets no pool label": {
			pools:   []v1.NodePoolSpec{allFields},
			facts:   member(func(f *nodeinfo.Facts) { f.Labels = nil }),
			current: labelled(nil),
			want:    map[string]*string{},
		},
		"a node that joins a pool before it has a driver": {
			pools: []v1.NodePoolSpec{allFields}, facts: member(unchanged), current: labelled(nil), want: merged(own, driver),
		},
		"a node that has a driver keeps it": {
			pools: []v1.NodePoolSpec{allFields}, facts: member(unchanged), current: labelled(nil), driverReady: true, want: own,
		},
		"a node that has all labels gets no write": {
			pools:       []v1.NodePoolSpec{allFields},
			facts:       member(in),
			current:     moved,
			driverReady: true,
			want:        map[string]*string{},
		},
		"a pool that overrides no operand": {
			pools:   []v1.NodePoolSpec{{Name: "b", NodeSelector: v1.NodePoolSelector{"team": "a"}, MIG: &v1.MIGSpec{}}},
			facts:   member(unchanged),
			current: labelled(nil),
			want:    map[string]*string{ownLabel + "node-pool": set("b")},
		},
		"a removed pool, and a running driver": {facts: member(in), current: moved, driverReady: true, want: withoutPool},
		"a removed pool, and no driver": {
			facts:   member(in),
			current: moved,
			want: merged(
				withoutPool,
				map[string]*string{
					ownLabel + "pool":           set("ubuntu24.04-amd64"),
					ownLabel + "pool-node-pool": removed,
					anchor + "driver":           set("ubuntu24.04-amd64"),
				},
			),
		},
		"an invalid toolkit of the pool changes nothing for the toolkit": {
			pools: []v1.NodePoolSpec{wrongToolkit}, facts: member(unchanged), current: labelled(nil), driverReady: true,
			want: without(without(own, ownLabel+"node-pool.container-toolkit"), anchor+"container-toolkit"),
		},
		"an invalid driver of the pool removes no driver": {
			pools: []v1.NodePoolSpec{wrongDriver}, facts: member(unchanged), current: labelled(nil), want: own,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := plan.Decide(catalogue(t), withPools(test.pools...)).
				NodeLabels(test.facts, test.current, plan.ReadyPods{Driver: test.driverReady, Injector: true})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	t.Run("without a policy all of them are removed", func(t *testing.T) {
		for key := range merged(own, driver) {
			if change, found := plan.ReleasedLabels(catalogue(t), moved, "")[key]; !found || change != nil {
				t.Errorf("%s stays", key)
			}
		}
	})
}

func merged(a, b map[string]*string) map[string]*string {
	result := map[string]*string{}
	for _, changes := range []map[string]*string{a, b} {
		for key, value := range changes {
			result[key] = value
		}
	}
	return result
}

func without(changes map[string]*string, key string) map[string]*string {
	result := merged(changes, nil)
	delete(result, key)
	return result
}

// The driver of a removed pool is neither changed nor removed, and the plan of its node has the expected pool.
func TestDriverOfARemovedPoolStays(t *testing.T) {
	facts := withLabels(ubuntu("a"), "team", "a")
	facts.Pool, facts.PoolNodePool = "ubuntu24.04-amd64-a100", "a100"
	onlyMIG := allFields
	onlyMIG.Driver = nil
	for name, in := range map[string]operand.Input{"no pool": withPools(), "no driver in the pool": withPools(onlyMIG)} {
		t.Run(name, func(t *testing.T) {
			decisions := plan.Decide(catalogue(t), in)
			expectDrivers(t, plan.Compute(decisions, nil, []nodeinfo.Facts{facts}), map[string]string{}, true)
			node := decisions.ForNode(facts)
			if node.Pool.Name != "ubuntu24.04-amd64" {
				t.Errorf("the expected pool is %+v", node.Pool)
			}
			for _, stage := range node.Essential {
				if stage.Expectation != plan.Expected {
					t.Errorf("%+v", stage)
				}
			}
		})
	}
	p := plan.Compute(plan.Decide(catalogue(t), withPools(allFields)), nil, []nodeinfo.Facts{facts})
	expectDrivers(t, p, map[string]string{
		"ubuntu24.04-amd64-a100": "nvcr.io/nvidia/driver:590.44.01-ubuntu24.04",
	}, false)
}

// If a ConfigMap that only a pool references is missing, its nodes keep what they have, and others are not affected.
func TestPoolWithMissingReference(t *testing.T) {
	pool := v1.NodePoolSpec{
		Name: "shared", NodeSelector: v1.NodePoolSelector{"team": "a"},
		DevicePlugin: &v1.NodePoolDevicePluginSpec{Config: &v1.NodePoolPluginConfigSpec{Name: "configs", Default: "four"}},
	}
	nodes := []nodeinfo.Facts{ubuntu("plain"), withLabels(ubuntu("a"), "team", "a")}
	instances := func(in operand.Input) (string, bool, string) {
		p := plan.Compute(plan.Decide(catalogue(t), in), nil, nodes)
		for _, step := range p.Steps {
			if step.Operand.Name == "device-plugin" {
				var suffixes []string
				for _, instance := range step.Instances {
					suffixes = append(suffixes, instance.Suffix)
				}
				return fmt.Sprintf("%s %q", step.Action, suffixes), step.KeepUnrendered, p.NodePools[0].Decision.Message
			}
		}
		return "", false, ""
	}
	in := withPools(pool)
	in.Namespace, in.Contents = "gpu-operator", map[operand.Reference]operand.Content{}
	got, hold, message := instances(in)
	const missing = "node pool shared: spec.devicePlugin.config.name: " +
		"there is no ConfigMap configs in namespace gpu-operator: create it"
	if got != `Apply [""]` || !hold || message != missing {
		t.Errorf("without the ConfigMap: %s, hold %v, %s", got, hold, message)
	}
	in.Contents[operand.Reference{Kind: operand.ConfigMap, Name: "configs"}] = operand.Content{
		Digest: "1",
		Keys:   []string{"four"},
	}
	if got, hold, message = instances(in); got != `Apply ["" "-pool-shared"]` || hold || message != "" {
		t.Errorf("with the ConfigMap: %s, hold %v, %s", got, hold, message)
	}
}

// The default MIG configuration of a pool becomes a label of its nodes, unless a user has set it.
func TestMIGConfigOfAPool(t *testing.T) {
	pool := v1.NodePoolSpec{
		Name:         "a",
		NodeSelector: v1.NodePoolSelector{"team": "a"},
		MIGManager: &v1.NodePoolMIGManagerSpec{
			Config: &v1.NodePoolMIGConfigSpec{Default: new("all-1g.10gb")},
		},
	}
	p := plan.Decide(catalogue(t), withPools(pool))
	capable := changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.MIGCapable = "true" })
	for name, test := range map[string]struct {
		facts   nodeinfo.Facts
		current map[string]string
		want    *string
	}{
		"a node of the pool": {facts: withLabels(capable, "team", "a"), want: set("all-1g.10gb")},
		"one with a configuration of a user": {
			facts:   withLabels(capable, "team", "a"),
			current: map[string]string{"nvidia.com/mig.config": "all-3g.40gb"},
		},
		"a node of no pool": {facts: capable},
	} {
		t.Run(name, func(t *testing.T) {
			got := p.NodeLabels(test.facts, test.current, plan.ReadyPods{Injector: true, Unused: true})["nvidia.com/mig.config"]
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
