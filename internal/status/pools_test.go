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

// newEnvWithNodePools returns a cluster of three nodes. The second one belongs to a node pool with its own driver, the
// third one to a node pool that sets only spec.mig.
func newEnvWithNodePools(t *testing.T) *env {
	t.Helper()
	e := newEnv(t, 3)
	e.spec.NodePools = []v1.NodePoolSpec{
		{
			Name:         "own",
			NodeSelector: v1.NodePoolSelector{"team": "a"},
			Driver:       &v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{Version: "590.44.01"}},
		},
		{Name: "mixed", NodeSelector: v1.NodePoolSelector{"team": "b"}, MIG: &v1.MIGSpec{Strategy: v1.MIGStrategyMixed}},
	}
	for i, team := range []string{"", "a", "b"} {
		e.snapshot.Nodes[i].Facts.Labels = map[string]string{"team": team}
	}
	own := &e.snapshot.Nodes[1].Facts
	own.Pool, own.PoolNodePool = "ubuntu24.04-amd64-own", "own"
	for name, ds := range maps.Clone(e.snapshot.DaemonSets) {
		another := ds.DeepCopy()
		another.Name, another.Status = name+"-pool", appsv1.DaemonSetStatus{}
		e.snapshot.DaemonSets[another.Name] = another
	}
	return e
}

func TestNodePoolStatus(t *testing.T) {
	const version, common = "590.44.01", "595.91.07"
	wrong := v1.NodePoolSpec{Name: "wrong", NodeSelector: v1.NodePoolSelector{"team": "a", "zone": "1"}}
	const hidden = "spec.nodePools: every node that wrong selects belongs to own, which comes first: " +
		"list wrong first, or change one nodeSelector"
	tests := map[string]struct {
		change func(*env)
		own    v1.NodePoolStatus
		more   []v1.NodePoolStatus
		// readyReason is the reason of the condition Ready.
		readyReason string
	}{
		"all works": {
			change:      func(*env) {},
			own:         v1.NodePoolStatus{Nodes: 1, Ready: 1, DriverVersion: version},
			readyReason: v1.ReasonReconciled,
		},
		"a node fails": {
			change: func(e *env) { e.failPod(1, "driver", "no such device") }, readyReason: v1.ReasonOperandFailed,
			own: v1.NodePoolStatus{
				Nodes:         1,
				DriverVersion: version,
				Reason:        "CrashLoopBackOff",
				Message:       "0 of 1 nodes are ready; node-00001: stage Driver, CrashLoopBackOff",
			},
		},
		"a node has the previous driver": {
			change: func(e *env) {
				facts := &e.snapshot.Nodes[1].Facts
				facts.Pool, facts.PoolNodePool = "ubuntu24.04-amd64", ""
			},
			own: v1.NodePoolStatus{
				Nodes:         1,
				Ready:         1,
				DriverVersion: version,
				Reason:        v1.ReasonUpgradePending,
				Message:       "1 of 1 nodes are ready; node-00001: stage Validated, UpgradePending",
			},
			readyReason: v1.ReasonUpgradePending,
		},
		"a node is excluded": {
			change:      func(e *env) { e.snapshot.Nodes[1].Facts.ExcludedByLabel = true },
			own:         v1.NodePoolStatus{DriverVersion: version},
			readyReason: v1.ReasonReconciled,
		},
		"a pool that no node can belong to": {
			change: func(e *env) { e.spec.NodePools = append(e.spec.NodePools, wrong) },
			own:    v1.NodePoolStatus{Nodes: 1, Ready: 1, DriverVersion: version},
			more: []v1.NodePoolStatus{
				{Name: "wrong", DriverVersion: common, Reason: v1.ReasonInvalidSpec, Message: hidden},
			},
			readyReason: v1.ReasonInvalidSpec,
		},
		"a pool that refers to a missing object": {
			change: func(e *env) {
				e.contents = map[operand.Reference]operand.Content{}
				e.spec.NodePools[1].DevicePlugin = &v1.NodePoolDevicePluginSpec{
					Config: &v1.NodePoolPluginConfigSpec{Name: "shares"},
				}
			},
			own:         v1.NodePoolStatus{Nodes: 1, Ready: 1, DriverVersion: version},
			readyReason: v1.ReasonOperandNotReady,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnvWithNodePools(t)
			test.change(e)
			status := e.status()
			if got := ready(status).Reason; got != test.readyReason {
				t.Errorf("Ready has reason %s: %s", got, ready(status).Message)
			}
			test.own.Name = "own"
			mixed := v1.NodePoolStatus{Name: "mixed", Nodes: 1, Ready: 1, DriverVersion: common}
			if test.readyReason == v1.ReasonOperandNotReady {
				mixed.Reason, mixed.Message = v1.ReasonReferenceMissing,
					"node pool mixed: spec.devicePlugin.config.name: there is no ConfigMap shares in namespace gpu-operator: create it"
			}
			if diff := cmp.Diff(append([]v1.NodePoolStatus{test.own, mixed}, test.more...), status.NodePools); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestDriverPoolStatus(t *testing.T) {
	want := []v1.PoolStatus{
		{Name: "ubuntu24.04-amd64", Nodes: 2, Ready: 1, Image: "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"},
		{
			Name:     "ubuntu24.04-amd64-own",
			NodePool: "own",
			Nodes:    1,
			Ready:    1,
			Image:    "nvcr.io/nvidia/driver:590.44.01-ubuntu24.04",
		},
	}
	e := newEnvWithNodePools(t)
	e.failPod(0, "driver", "")
	if diff := cmp.Diff(want, e.status().Pools); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A long message of a node pool does not exceed the limit.
func TestNodePoolMessageIsTruncated(t *testing.T) {
	e := newEnvWithNodePools(t)
	e.spec.NodePools[0].Toolkit = &v1.NodePoolToolkitSpec{
		ImageSpec: v1.ImageSpec{Image: "example.com/" + strings.Repeat("a", 900), Version: "1"},
	}
	if got := e.status().NodePools[0]; len(got.Message) != 256 || got.Reason != v1.ReasonInvalidSpec {
		t.Errorf("%d bytes: %+v", len(got.Message), got)
	}
}
