package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

const ownerLabel = ownLabel + "driver.owner"

// withDrivers returns the input of a policy whose drivers are declared by these objects.
func withDrivers(drivers ...operand.NVIDIADriver) operand.Input {
	return operand.Input{Spec: driverSpec(""), NVIDIADrivers: append([]operand.NVIDIADriver{}, drivers...)}
}

func driverSpec(version string) effective.Spec {
	return effective.Of(v1.ClusterPolicySpec{Driver: &v1.DriverSpec{
		UseNvidiaDriverCRD: new(true), ImageSpec: v1.ImageSpec{Version: version},
	}})
}

// object returns an NVIDIADriver object that selects the nodes of a team.
func object(name, team, version string) operand.NVIDIADriver {
	return operand.NVIDIADriver{
		Name: name, Pool: name, NodeSelector: v1.NodePoolSelector{"team": v1.LabelValue(team)},
		Spec: driverSpec(version), Driver: ownDriver(version), Refused: operand.Accept(),
	}
}

// ownDriver returns the fields of an object with this version.
func ownDriver(version string) v1.NodePoolDriverSpec {
	return v1.NodePoolDriverSpec{ImageSpec: v1.ImageSpec{Version: version}}
}

func fallback(name string) operand.NVIDIADriver {
	return operand.NVIDIADriver{
		Name: name, Pool: name, Default: true, Spec: driverSpec("590.44.01"), Driver: ownDriver("590.44.01"),
		Refused: operand.Accept(),
	}
}

func TestNodeOfNVIDIADrivers(t *testing.T) {
	const version = "590.44.01"
	refused := object("a", "a", version)
	refused.Refused = operand.Refuse(v1.ReasonNotSupportedYet, "driverType vgpu-host-manager is not supported yet")
	everything := object("all", "", version)
	everything.NodeSelector = nil
	for name, test := range map[string]struct {
		drivers []operand.NVIDIADriver
		pool    string
		owner   *string
		// reason and message of the driver; empty if it is expected.
		reason, message string
	}{
		"the object that selects the node": {
			drivers: []operand.NVIDIADriver{object("a", "a", version), object("b", "b", version)},
			pool:    "ubuntu24.04-amd64-a", owner: set("a"),
		},
		"a driver that equals that of the spec needs no pool of its own": {
			drivers: []operand.NVIDIADriver{object("a", "a", "")}, pool: "ubuntu24.04-amd64", owner: set("a"),
		},
		"the default serves what no other selects": {
			drivers: []operand.NVIDIADriver{object("b", "b", version), fallback("rest")},
			pool:    "ubuntu24.04-amd64-rest", owner: set("rest"),
		},
		"the default does not conflict with others": {
			drivers: []operand.NVIDIADriver{object("a", "a", version), fallback("rest")},
			pool:    "ubuntu24.04-amd64-a", owner: set("a"),
		},
		"an empty nodeSelector selects every node": {
			drivers: []operand.NVIDIADriver{everything}, pool: "ubuntu24.04-amd64-all", owner: set("all"),
		},
		"no object selects the node": {
			drivers: []operand.NVIDIADriver{object("b", "b", version)},
			reason:  v1.ReasonNoNVIDIADriver,
			message: "no NVIDIADriver selects the node: change a nodeSelector, or create one with default: true",
		},
		"there is no object": {
			reason:  v1.ReasonNoNVIDIADriver,
			message: "no NVIDIADriver selects the node: change a nodeSelector, or create one with default: true",
		},
		"two objects select the node": {
			drivers: []operand.NVIDIADriver{object("a", "a", version), object("b", "a", version)},
			reason:  v1.ReasonConflictingNodeSelector,
			message: "NVIDIADrivers a and b select the node: change one nodeSelector",
		},
		"two defaults": {
			drivers: []operand.NVIDIADriver{fallback("x"), fallback("y")},
			reason:  v1.ReasonConflictingNodeSelector,
			message: "NVIDIADrivers x and y select the node: change one nodeSelector",
		},
		"an object that cannot be used": {
			drivers: []operand.NVIDIADriver{refused}, owner: set("a"), reason: v1.ReasonNotSupportedYet,
			message: "NVIDIADriver a: driverType vgpu-host-manager is not supported yet",
		},
	} {
		t.Run(name, func(t *testing.T) {
			decisions := plan.Decide(catalogue(t), withDrivers(test.drivers...))
			facts := withLabels(ubuntu("n"), "team", "a")
			node := decisions.ForNode(facts)
			onNode, applies := decisions.Driver(&node)
			if !applies || onNode.Reason != test.reason || onNode.Message != test.message {
				t.Errorf("the driver is %+v", onNode)
			}
			changes := decisions.NodeLabels(facts, map[string]string{}, plan.ReadyPods{})
			if diff := cmp.Diff(test.owner, changes[ownerLabel]); diff != "" {
				t.Errorf("owner: -want +got:\n%s", diff)
			}
			if _, labelled := changes["nvidia.com/gpu.deploy.driver"]; test.reason != "" && test.owner == nil && labelled {
				t.Error("a node without an NVIDIADriver gets a driver")
			}
			if test.pool != "" && cmp.Diff(set(test.pool), changes[ownLabel+"pool"]) != "" {
				t.Errorf("the pool is %v", changes[ownLabel+"pool"])
			}
		})
	}
}

// A running driver is neither changed nor removed while no NVIDIADriver object, or several, select its node.
func TestDriverOfANodeWithoutNVIDIADriverStays(t *testing.T) {
	current := labelled(nil)
	facts := withLabels(ubuntu("n"), "team", "a")
	facts.Pool, facts.Deploy = "ubuntu24.04-amd64", map[string]string{"driver": "true"}
	for name, drivers := range map[string][]operand.NVIDIADriver{
		"no object":   {},
		"not matched": {object("b", "b", "1")},
		"conflict":    {object("a", "a", "1"), object("b", "a", "1")},
	} {
		t.Run(name, func(t *testing.T) {
			decisions := plan.Decide(catalogue(t), withDrivers(drivers...))
			changes := decisions.NodeLabels(facts, current, plan.ReadyPods{})
			for _, key := range []string{ownLabel + "pool", "nvidia.com/gpu.deploy.driver", anchor + "driver"} {
				if change, changed := changes[key]; changed {
					t.Errorf("%s is changed to %v", key, change)
				}
			}
			expectDrivers(t, plan.Compute(decisions, nil, []nodeinfo.Facts{facts}), map[string]string{}, true)
		})
	}
}

// Objects that another pool's nodes have are served, although other nodes conflict.
func TestConflictHoldsUpNoOtherNode(t *testing.T) {
	in := withDrivers(object("a", "a", "1"), object("b", "a", "1"), object("c", "c", "2"))
	decisions := plan.Decide(catalogue(t), in)
	nodes := []nodeinfo.Facts{withLabels(ubuntu("n"), "team", "a"), withLabels(ubuntu("m"), "team", "c")}
	expectDrivers(t, plan.Compute(decisions, nil, nodes),
		map[string]string{"ubuntu24.04-amd64-c": "nvcr.io/nvidia/driver:2-ubuntu24.04"}, false)
}

// A toolkit of a node pool and the driver of an NVIDIADriver object apply to a node independently.
func TestNodePoolAndNVIDIADriver(t *testing.T) {
	in := withDrivers(object("a", "a", "1"))
	in.Spec.NodePools = []v1.NodePoolSpec{{
		Name: "tools", NodeSelector: v1.NodePoolSelector{"team": "a"}, Toolkit: allFields.Toolkit,
	}}
	changes := plan.Decide(catalogue(t), in).
		NodeLabels(withLabels(ubuntu("n"), "team", "a"), map[string]string{}, plan.ReadyPods{})
	want := map[string]*string{
		ownerLabel: set("a"), ownLabel + "pool": set("ubuntu24.04-amd64-a"),
		ownLabel + "node-pool": set("tools"), ownLabel + "node-pool.container-toolkit": set("tools"),
	}
	for key, value := range want {
		if diff := cmp.Diff(value, changes[key]); diff != "" {
			t.Errorf("%s: -want +got:\n%s", key, diff)
		}
	}
}

// The nodeSelector of spec.driver does not apply to the drivers of NVIDIADriver objects.
func TestSelectorOfTheSpecDoesNotApplyToNVIDIADrivers(t *testing.T) {
	in := withDrivers(object("a", "a", "1"))
	driver := in.Spec.Driver.DeepCopy()
	driver.NodeSelector = v1.Labels{"team": "other"}
	in.Spec.Driver = driver
	decisions := plan.Decide(catalogue(t), in)
	node := decisions.ForNode(withLabels(ubuntu("n"), "team", "a"))
	if onNode, applies := decisions.Driver(&node); !applies || onNode.Expectation != plan.Expected {
		t.Errorf("the driver is %+v", onNode)
	}
}

// A driver that no object declares must not appear in spec.nodePools beside NVIDIADriver objects.
func TestDriverOfANodePoolExcludesNVIDIADrivers(t *testing.T) {
	in := withDrivers(object("a", "a", "1"))
	in.Spec.NodePools = []v1.NodePoolSpec{allFields}
	const want = "spec.nodePools: a100 has a driver, which excludes spec.driver.useNvidiaDriverCRD: remove one of them"
	for _, step := range plan.Compute(plan.Decide(catalogue(t), in), nil, []nodeinfo.Facts{ubuntu("n")}).Steps {
		if step.Operand.Name == "driver" &&
			(step.Action != plan.Hold || step.Reason != v1.ReasonInvalidSpec || step.Message != want) {
			t.Errorf("%s %s: %s", step.Action, step.Reason, step.Message)
		}
	}
}

// An object that is refused gives new nodes no driver, also if its driver equals that of the spec, whose DaemonSet
// other nodes have.
func TestRefusedNVIDIADriver(t *testing.T) {
	unsupported, incomplete := object("a", "a", ""), object("a", "a", "")
	unsupported.Refused = operand.Refuse(v1.ReasonNotSupportedYet, "driverType vgpu-host-manager is not supported yet")
	own := incomplete.Spec.Driver.DeepCopy()
	own.SecretEnv = "missing"
	incomplete.Spec.Driver, incomplete.Driver.SecretEnv = own, own.SecretEnv
	for name, refused := range map[string]operand.NVIDIADriver{
		"not supported": unsupported, "names a missing Secret": incomplete,
	} {
		t.Run(name, func(t *testing.T) {
			in := withDrivers(refused, object("b", "b", ""))
			in.Contents = map[operand.Reference]operand.Content{}
			decisions := plan.Decide(catalogue(t), in)
			changes := decisions.NodeLabels(withLabels(ubuntu("n"), "team", "a"), map[string]string{}, plan.ReadyPods{})
			if _, labelled := changes["nvidia.com/gpu.deploy.driver"]; labelled {
				t.Error("a node of a refused object gets a driver")
			}
			nodes := []nodeinfo.Facts{withLabels(ubuntu("n"), "team", "a"), withLabels(ubuntu("m"), "team", "b")}
			expectDrivers(t, plan.Compute(decisions, nil, nodes),
				map[string]string{"ubuntu24.04-amd64": "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"}, false)
		})
	}
}

// What spec.driver has does not hold the drivers of objects: neither a missing Secret nor a wrong variable.
func TestSpecOfTheDriverDoesNotHoldNVIDIADrivers(t *testing.T) {
	in := withDrivers(object("a", "a", "1"))
	in.Contents = map[operand.Reference]operand.Content{}
	own := in.Spec.Driver.DeepCopy()
	own.SecretEnv, own.UsePrecompiled = "missing", new(true)
	in.Spec.Driver = own
	nodes := []nodeinfo.Facts{withLabels(ubuntu("n"), "team", "a")}
	expectDrivers(t, plan.Compute(plan.Decide(catalogue(t), in), nil, nodes),
		map[string]string{"ubuntu24.04-amd64-a": "nvcr.io/nvidia/driver:1-ubuntu24.04"}, false)
}
