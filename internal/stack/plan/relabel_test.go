package plan_test

import (
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// A node with the label of a driver pool that has no DaemonSet counts as a node of its own pool, all others stay.
func TestRelabel(t *testing.T) {
	const own = "ubuntu24.04-amd64"
	labelled := func(pool, nodePool string) nodeinfo.Facts {
		return changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Pool, f.PoolNodePool = pool, nodePool })
	}
	noDriver := operand.Input{
		Spec: effective.Of(v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UseNvidiaDriverCRD: new(true)}}),
	}
	ofSpec := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}
	tests := map[string]struct {
		in       operand.Input
		node     nodeinfo.Facts
		variants []string
		want     nodeinfo.Facts
	}{
		"no label":                        {in: ofSpec, node: ubuntu("a"), want: ubuntu("a")},
		"a pool without a DaemonSet":      {in: ofSpec, node: labelled("rhel9-amd64", ""), want: labelled(own, "")},
		"a node pool without a DaemonSet": {in: ofSpec, node: labelled("rhel9-amd64-x", "x"), want: labelled(own, "")},
		"its own pool":                    {in: ofSpec, node: labelled(own, ""), want: labelled(own, "")},
		"a pool with a DaemonSet": {
			in: ofSpec, node: labelled("rhel9-amd64", ""), variants: []string{"containerd", "rhel9-amd64"},
			want: labelled("rhel9-amd64", ""),
		},
		"the driver of the node is refused": {
			in: noDriver, node: labelled("rhel9-amd64", ""), want: labelled("rhel9-amd64", ""),
		},
		"the system of the node is not known": {
			in:   ofSpec,
			node: changed(labelled("rhel9-amd64", ""), func(f *nodeinfo.Facts) { f.OSID = "" }),
			want: changed(labelled("rhel9-amd64", ""), func(f *nodeinfo.Facts) { f.OSID = "" }),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := plan.Decide(catalogue(t), test.in).Relabel([]nodeinfo.Facts{test.node}, test.variants)
			if len(got) != 1 || !got[0].Equal(test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
