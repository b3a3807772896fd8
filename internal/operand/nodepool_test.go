package operand_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

func pools(selectors ...v1.NodePoolSelector) []operand.NodePool {
	var spec v1.ClusterPolicySpec
	for i, selector := range selectors {
		spec.NodePools = append(spec.NodePools, v1.NodePoolSpec{Name: string(rune('a' + i)), NodeSelector: selector})
	}
	return operand.NodePools(effective.Of(spec))
}

func TestANodeBelongsToTheFirstPoolThatSelectsIt(t *testing.T) {
	const product, count = "nvidia.com/gpu.product", "feature.node.kubernetes.io/pci-10de.present"
	two := pools(v1.NodePoolSelector{product: "A100", "zone": "1"}, v1.NodePoolSelector{"team": "x"})
	first := pools(v1.NodePoolSelector{"team": "x"}, v1.NodePoolSelector{"zone": "1"})
	discovered := pools(v1.NodePoolSelector{"team": "x", count: "true"})
	tests := map[string]struct {
		pools []operand.NodePool
		node  operand.NodeFacts
		want  int
	}{
		"no pool":                      {node: operand.NodeFacts{Labels: map[string]string{"team": "x"}}, want: -1},
		"no label":                     {pools: two, want: -1},
		"all labels":                   {pools: two, node: operand.NodeFacts{Labels: map[string]string{product: "A100", "zone": "1"}}, want: 0},
		"half of them":                 {pools: two, node: operand.NodeFacts{Labels: map[string]string{"zone": "1"}}, want: -1},
		"another value":                {pools: two, node: operand.NodeFacts{Labels: map[string]string{product: "H100", "zone": "1", "team": "x"}}, want: 1},
		"both":                         {pools: first, node: operand.NodeFacts{Labels: map[string]string{"zone": "1", "team": "x"}}, want: 0},
		"a label of discovery is lost": {pools: two, node: operand.NodeFacts{NodePool: "a", Labels: map[string]string{"zone": "1", "team": "x"}}, want: 0},
		"and says another value":       {pools: two, node: operand.NodeFacts{NodePool: "a", Labels: map[string]string{product: "H100", "zone": "1"}}, want: -1},
		"it is lost where the node was in another pool": {
			pools: two, node: operand.NodeFacts{NodePool: "b", Labels: map[string]string{"zone": "1", "team": "x"}}, want: 1,
		},
		"a label of NFD is lost":     {pools: discovered, node: operand.NodeFacts{NodePool: "a", Labels: map[string]string{"team": "x"}}, want: 0},
		"a label of a user is taken": {pools: discovered, node: operand.NodeFacts{NodePool: "a", Labels: map[string]string{count: "true"}}, want: -1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := operand.PoolOf(test.pools, test.node); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestPoolsThatNoNodeCanBelongTo(t *testing.T) {
	const every = "spec.nodePools: every node that b selects belongs to a, which comes first: "
	tests := map[string]struct {
		first, second v1.NodePoolSelector
		want          string
	}{
		"other nodes":        {first: v1.NodePoolSelector{"a": "1"}, second: v1.NodePoolSelector{"a": "2"}},
		"nodes of both":      {first: v1.NodePoolSelector{"a": "1"}, second: v1.NodePoolSelector{"b": "1"}},
		"the narrower first": {first: v1.NodePoolSelector{"a": "1", "b": "1"}, second: v1.NodePoolSelector{"a": "1"}},
		"no label":           {first: v1.NodePoolSelector{"a": "1"}, want: "spec.nodePools: b selects no node: name labels of its nodes in nodeSelector"},
		"the same":           {v1.NodePoolSelector{"a": "1"}, v1.NodePoolSelector{"a": "1"}, every + "give one of the two other labels"},
		"the wider first":    {v1.NodePoolSelector{"a": "1"}, v1.NodePoolSelector{"a": "1", "b": "1"}, every + "put b first, or give one of the two other labels"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			found := pools(test.first, test.second)
			if got := found[1].Refused.Message; got != test.want || (got != "") != (found[1].Refused.Reason == v1.ReasonInvalidSpec) {
				t.Errorf("got %+v, want %q", found[1].Refused, test.want)
			}
			if found[0].Refused.Verdict != operand.Install {
				t.Errorf("the first one is refused: %+v", found[0].Refused)
			}
		})
	}
}

// The labels that a node gets name its driver pool again, whatever the node's facts are by then, and no two pools
// have one name.
func TestDriverPoolsOfNodePools(t *testing.T) {
	plain := operand.NodeFacts{OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64", Kernel: "6.8.0-51-generic"}
	arm := plain
	arm.Architecture = "arm64"
	release := coreOS("418.94.202501221327-0")
	names := map[string]operand.Pool{}
	for _, nodePool := range []string{"", "a100", "a100-generic", "generic", strings.Repeat("a", 40)} {
		for _, facts := range []operand.NodeFacts{plain, arm, release} {
			for _, key := range []operand.PoolKey{{}, {Kernel: true}, {CoreOS: true}} {
				key.NodePool = nodePool
				pool, complete := facts.WantedPool(key)
				if !complete {
					continue // CoreOS tells no kernel here.
				}
				if other, taken := names[pool.Name]; taken && other != pool {
					t.Errorf("%+v and %+v have one name", pool, other)
				}
				names[pool.Name] = pool
				moved := facts
				moved.Pool, moved.PoolKernel, moved.PoolCoreOS, moved.PoolNodePool = pool.Name, pool.Kernel, pool.CoreOS, pool.NodePool
				moved.OSVersion = "26.04"
				if got, _ := moved.EffectivePool(operand.PoolKey{}); got != pool {
					t.Errorf("the labels of %+v name %+v", pool, got)
				}
			}
		}
	}
	if len(names) < 30 {
		t.Errorf("%d pools are too few", len(names))
	}
	if got := names["ubuntu24.04-amd64-a100-6.8.0-51-generic"]; got.NodePool != "a100" {
		t.Errorf("there is no pool of that name: %+v", got)
	}
}

func TestWhatPoolsSayDifferently(t *testing.T) {
	type varies struct{ Driver, Toolkit, Plugin, MIG bool }
	version := v1.ImageSpec{Version: "1"}
	tests := map[string]struct {
		pool v1.NodePoolSpec
		want varies
	}{
		"nothing": {},
		"empty blocks": {pool: v1.NodePoolSpec{
			Driver: &v1.NodePoolDriverSpec{KernelModuleConfig: &v1.KernelModuleConfigSpec{}}, Toolkit: &v1.NodePoolToolkitSpec{},
			DevicePlugin: &v1.NodePoolDevicePluginSpec{Config: &v1.NodePoolPluginConfigSpec{}}, MIG: &v1.MIGSpec{},
		}},
		"a driver version": {v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{ImageSpec: version}}, varies{Driver: true}},
		"its modules":      {v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{UsePrecompiled: new(false)}}, varies{Driver: true}},
		"their kind":       {v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{KernelModuleType: "open"}}, varies{Driver: true}},
		"their parameters": {v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{KernelModuleConfig: &v1.KernelModuleConfigSpec{Name: "a"}}}, varies{Driver: true}},
		"a toolkit":        {v1.NodePoolSpec{Toolkit: &v1.NodePoolToolkitSpec{ImageSpec: version}}, varies{Toolkit: true}},
		"a configuration": {
			v1.NodePoolSpec{DevicePlugin: &v1.NodePoolDevicePluginSpec{Config: &v1.NodePoolPluginConfigSpec{Default: "a"}}}, varies{Plugin: true},
		},
		"a MIG strategy": {v1.NodePoolSpec{MIG: &v1.MIGSpec{Strategy: v1.MIGStrategyMixed}}, varies{Plugin: true, MIG: true}},
		"a layout": {pool: v1.NodePoolSpec{MIGManager: &v1.NodePoolMIGManagerSpec{
			Config: &v1.NodePoolMIGConfigSpec{Default: new("all-balanced")},
		}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := varies{operand.VariesDriver(test.pool), operand.VariesToolkit(test.pool), operand.VariesPlugin(test.pool), operand.VariesMIG(test.pool)}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// What a pool names is looked for like what the spec names.
func TestTheReferencesOfPools(t *testing.T) {
	uses := func(in operand.Input) []operand.Use {
		return []operand.Use{operand.ConfigMapUse("spec.devicePlugin.config.name", in.Spec.DevicePlugin.Config.Name)}
	}
	config := func(name string) v1.NodePoolSpec {
		return v1.NodePoolSpec{Name: name, DevicePlugin: &v1.NodePoolDevicePluginSpec{Config: &v1.NodePoolPluginConfigSpec{Name: name}}}
	}
	in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{NodePools: []v1.NodePoolSpec{config("a"), config("b")}})}
	catalogue := operand.Catalogue{{References: uses, Varies: operand.VariesPlugin}, {References: uses}}
	want := []operand.Reference{{Kind: operand.ConfigMap, Name: "a"}, {Kind: operand.ConfigMap, Name: "b"}}
	if diff := cmp.Diff(want, catalogue.Uses(in)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := (operand.Catalogue{}).SelectorKeys(operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{NodePools: []v1.NodePoolSpec{
		{Name: "a", NodeSelector: v1.NodePoolSelector{"team": "x"}},
	}})}); !got["team"] {
		t.Errorf("a change of label team is no news: %v", got)
	}
}
