package status

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Of three nodes the second belongs to a pool with a driver of its own, and the third to one that says less.
func pooled(t *testing.T) *bed {
	t.Helper()
	b := newBed(t, 3)
	b.spec.NodePools = []v1.NodePoolSpec{
		{Name: "own", NodeSelector: v1.NodePoolSelector{"team": "a"}, Driver: &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{Version: "590.44.01"}}},
		{Name: "mixed", NodeSelector: v1.NodePoolSelector{"team": "b"}, MIG: &v1.MIGSpec{Strategy: v1.MIGStrategyMixed}},
	}
	for i, team := range []string{"", "a", "b"} {
		b.snapshot.Nodes[i].Facts.Labels = map[string]string{"team": team}
	}
	own := &b.snapshot.Nodes[1].Facts
	own.Pool, own.PoolNodePool = "ubuntu24.04-amd64-own", "own"
	for name, ds := range maps.Clone(b.snapshot.DaemonSets) {
		another := ds.DeepCopy()
		another.Name, another.Status = name+"-pool", appsv1.DaemonSetStatus{}
		b.snapshot.DaemonSets[another.Name] = another
	}
	return b
}

func TestTheStatusOfNodePools(t *testing.T) {
	const version, common = "590.44.01", "595.91.07"
	wrong := v1.NodePoolSpec{Name: "wrong", NodeSelector: v1.NodePoolSelector{"team": "a", "zone": "1"}}
	const hidden = "spec.nodePools: every node that wrong selects belongs to own, which comes first: list wrong first, or change one nodeSelector"
	tests := map[string]struct {
		change func(*bed)
		own    v1.NodePoolStatus
		more   []v1.NodePoolStatus
		// verdict is the reason of the condition Ready.
		verdict string
	}{
		"all works": {
			change: func(*bed) {}, own: v1.NodePoolStatus{Nodes: 1, Ready: 1, DriverVersion: version}, verdict: v1.ReasonReconciled,
		},
		"a node fails": {
			change: func(b *bed) { b.fail(1, "driver", "no such device") }, verdict: v1.ReasonOperandFailed,
			own: v1.NodePoolStatus{Nodes: 1, DriverVersion: version, Reason: "CrashLoopBackOff", Message: "0 of 1 nodes are ready; node-00001: stage Driver, CrashLoopBackOff"},
		},
		"a node has the driver of before": {
			change: func(b *bed) {
				facts := &b.snapshot.Nodes[1].Facts
				facts.Pool, facts.PoolNodePool = "ubuntu24.04-amd64", ""
			},
			own:     v1.NodePoolStatus{Nodes: 1, Ready: 1, DriverVersion: version, Reason: v1.ReasonUpgradePending, Message: "1 of 1 nodes are ready; node-00001: stage Validated, UpgradePending"},
			verdict: v1.ReasonUpgradePending,
		},
		"a node is excluded": {
			change: func(b *bed) { b.snapshot.Nodes[1].Facts.Excluded = true }, own: v1.NodePoolStatus{DriverVersion: version}, verdict: v1.ReasonReconciled,
		},
		"a pool that no node can belong to": {
			change:  func(b *bed) { b.spec.NodePools = append(b.spec.NodePools, wrong) },
			own:     v1.NodePoolStatus{Nodes: 1, Ready: 1, DriverVersion: version},
			more:    []v1.NodePoolStatus{{Name: "wrong", DriverVersion: common, Reason: v1.ReasonInvalidSpec, Message: hidden}},
			verdict: v1.ReasonInvalidSpec,
		},
		"a pool that names what is missing": {
			change: func(b *bed) {
				b.contents = map[operand.Reference]operand.Content{}
				b.spec.NodePools[1].DevicePlugin = &v1.NodePoolDevicePluginSpec{Config: &v1.NodePoolPluginConfigSpec{Name: "shares"}}
			},
			own:     v1.NodePoolStatus{Nodes: 1, Ready: 1, DriverVersion: version},
			verdict: v1.ReasonOperandNotReady,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := pooled(t)
			test.change(b)
			status := b.status()
			if got := ready(status).Reason; got != test.verdict {
				t.Errorf("the verdict is %s: %s", got, ready(status).Message)
			}
			test.own.Name = "own"
			mixed := v1.NodePoolStatus{Name: "mixed", Nodes: 1, Ready: 1, DriverVersion: common}
			if test.verdict == v1.ReasonOperandNotReady {
				mixed.Reason, mixed.Message = v1.ReasonReferenceMissing,
					"node pool mixed: spec.devicePlugin.config.name: there is no ConfigMap shares in namespace gpu-operator: create it"
			}
			if diff := cmp.Diff(append([]v1.NodePoolStatus{test.own, mixed}, test.more...), status.NodePools); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestDriverPoolsTellWhoseDriverItIs(t *testing.T) {
	want := []v1.PoolStatus{
		{Name: "ubuntu24.04-amd64", Nodes: 2, Ready: 2, Image: "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"},
		{Name: "ubuntu24.04-amd64-own", NodePool: "own", Nodes: 1, Ready: 1, Image: "nvcr.io/nvidia/driver:590.44.01-ubuntu24.04"},
	}
	if diff := cmp.Diff(want, pooled(t).status().Pools); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The status is bounded, however much a pool has to say.
func TestTheMessageOfANodePoolIsBounded(t *testing.T) {
	b := pooled(t)
	b.spec.NodePools[0].Toolkit = &v1.NodePoolToolkitSpec{ImageSpec: v1.ImageSpec{Image: "example.com/" + strings.Repeat("a", 900), Version: "1"}}
	if got := b.status().NodePools[0]; len(got.Message) != 256 || got.Reason != v1.ReasonInvalidSpec {
		t.Errorf("%d bytes: %+v", len(got.Message), got)
	}
}
