package operand_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

func pools(selectors ...v1.NodePoolSelector) []operand.NodePool {
	var spec v1.ClusterPolicySpec
	for i, selector := range selectors {
		spec.NodePools = append(spec.NodePools, v1.NodePoolSpec{Name: string(rune('a' + i)), NodeSelector: selector})
	}
	return operand.NodePools(effective.Of(spec))
}

func TestPoolOf(t *testing.T) {
	const product, count = "nvidia.com/gpu.product", "feature.node.kubernetes.io/pci-10de.present"
	two := pools(v1.NodePoolSelector{product: "A100", "zone": "1"}, v1.NodePoolSelector{"team": "x"})
	first := pools(v1.NodePoolSelector{"team": "x"}, v1.NodePoolSelector{"zone": "1"})
	discovered := pools(v1.NodePoolSelector{"team": "x", count: "true"})
	tests := map[string]struct {
		pools []operand.NodePool
		node  nodeinfo.Facts
		want  int
	}{
		"no pool":  {node: nodeinfo.Facts{Labels: map[string]string{"team": "x"}}, want: -1},
		"no label": {pools: two, want: -1},
		"all labels": {
			pools: two,
			node:  nodeinfo.Facts{Labels: map[string]string{product: "A100", "zone": "1"}},
			want:  0,
		},
		"one of two labels": {
			pools: two,
			node:  nodeinfo.Facts{Labels: map[string]string{"zone": "1"}},
			want:  -1,
		},
		"another value": {
			pools: two,
			node:  nodeinfo.Facts{Labels: map[string]string{product: "H100", "zone": "1", "team": "x"}},
			want:  1,
		},
		"selected by both pools": {
			pools: first,
			node:  nodeinfo.Facts{Labels: map[string]string{"zone": "1", "team": "x"}},
			want:  0,
		},
		"a discovery label is missing": {
			pools: two,
			node:  nodeinfo.Facts{NodePool: "a", Labels: map[string]string{"zone": "1", "team": "x"}},
			want:  0,
		},
		"a discovery label has another value": {
			pools: two,
			node:  nodeinfo.Facts{NodePool: "a", Labels: map[string]string{product: "H100", "zone": "1"}},
			want:  -1,
		},
		"a discovery label is missing, and the node was in another pool": {
			pools: two, node: nodeinfo.Facts{NodePool: "b", Labels: map[string]string{"zone": "1", "team": "x"}}, want: 1,
		},
		"a label of NFD is missing": {
			pools: discovered,
			node:  nodeinfo.Facts{NodePool: "a", Labels: map[string]string{"team": "x"}},
			want:  0,
		},
		"a label of a user is missing": {
			pools: discovered,
			node:  nodeinfo.Facts{NodePool: "a", Labels: map[string]string{count: "true"}},
			want:  -1,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := operand.NodePoolOf(test.pools, test.node); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestRefusedPools(t *testing.T) {
	const every = "spec.nodePools: every node that b selects belongs to a, which comes first: "
	tests := map[string]struct {
		first, second v1.NodePoolSelector
		want          string
	}{
		"other nodes":        {first: v1.NodePoolSelector{"a": "1"}, second: v1.NodePoolSelector{"a": "2"}},
		"overlapping pools":  {first: v1.NodePoolSelector{"a": "1"}, second: v1.NodePoolSelector{"b": "1"}},
		"the narrower first": {first: v1.NodePoolSelector{"a": "1", "b": "1"}, second: v1.NodePoolSelector{"a": "1"}},
		"no label": {
			first: v1.NodePoolSelector{"a": "1"},
			want:  "spec.nodePools: the nodeSelector of b is empty and selects no node: add labels of its nodes",
		},
		"the same": {
			v1.NodePoolSelector{"a": "1"},
			v1.NodePoolSelector{"a": "1"},
			every + "change one nodeSelector",
		},
		"the wider first": {
			v1.NodePoolSelector{"a": "1"},
			v1.NodePoolSelector{"a": "1", "b": "1"},
			every + "list b first, or change one nodeSelector",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			found := pools(test.first, test.second)
			if got := found[1].SelectorDecision.Message; got != test.want ||
				(got != "") != (found[1].SelectorDecision.Reason == v1.ReasonInvalidSpec) {
				t.Errorf("got %+v, want %q", found[1].SelectorDecision, test.want)
			}
			if found[0].SelectorDecision.Choice != operand.Install {
				t.Errorf("the first pool is refused: %+v", found[0].SelectorDecision)
			}
		})
	}
}

// References of a pool are read like those of the rest of the spec.
func TestUsesOfPools(t *testing.T) {
	uses := func(in operand.Input) []operand.Use {
		return []operand.Use{operand.ConfigMapUse("spec.devicePlugin.config.name", in.Spec.DevicePlugin.Config.Name)}
	}
	config := func(name string) v1.NodePoolSpec {
		return v1.NodePoolSpec{
			Name:         name,
			DevicePlugin: &v1.NodePoolDevicePluginSpec{Config: &v1.NodePoolPluginConfigSpec{Name: name}},
		}
	}
	in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{NodePools: []v1.NodePoolSpec{config("a"), config("b")}})}
	varies := func(pool v1.NodePoolSpec) bool { return pool.DevicePlugin != nil }
	catalogue := operand.Catalogue{{References: uses, Varies: varies}, {References: uses}}
	want := []operand.Reference{{Kind: operand.ConfigMap, Name: "a"}, {Kind: operand.ConfigMap, Name: "b"}}
	if diff := cmp.Diff(want, catalogue.Uses(in)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
