package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// inTier returns node a with this value of the label that selectors require.
func inTier(value string) nodeinfo.Facts {
	return changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Labels = map[string]string{"tier": value} })
}

// hasDriver returns the node with the labels of a node that has a driver.
func hasDriver(facts nodeinfo.Facts) nodeinfo.Facts {
	return changed(facts, func(f *nodeinfo.Facts) {
		f.Pool = "ubuntu24.04-amd64"
		f.Deploy = map[string]string{"driver": "true"}
	})
}

func selecting(selector v1.Labels) v1.PlacementSpec { return v1.PlacementSpec{NodeSelector: selector} }

var tier = v1.Labels{"tier": "gpu"}

// A selector keeps only its own operand off nodes with other labels.
func TestSelectedNodes(t *testing.T) {
	exporter := v1.ClusterPolicySpec{DCGMExporter: &v1.DCGMExporterSpec{PlacementSpec: selecting(tier)}}
	tests := map[string]struct {
		spec  v1.ClusterPolicySpec
		facts nodeinfo.Facts
		// off are the operands whose labels a node with all labels loses, and a new one does not get.
		off []operand.Name
	}{
		"no selector": {facts: ubuntu("a")},
		"an empty selector": {
			spec:  v1.ClusterPolicySpec{DCGMExporter: &v1.DCGMExporterSpec{PlacementSpec: selecting(v1.Labels{})}},
			facts: ubuntu("a"),
		},
		"the node has the label":     {spec: exporter, facts: inTier("gpu")},
		"the node has another value": {spec: exporter, facts: inTier("test"), off: []operand.Name{"dcgm-exporter"}},
		"the label is missing":       {spec: exporter, facts: ubuntu("a"), off: []operand.Name{"dcgm-exporter"}},
		"one of two is missing": {
			spec:  v1.ClusterPolicySpec{GFD: &v1.GFDSpec{PlacementSpec: selecting(v1.Labels{"tier": "gpu", "zone": "a"})}},
			facts: inTier("gpu"),
			off:   []operand.Name{"gpu-feature-discovery"},
		},
		"an empty label": {
			spec:  v1.ClusterPolicySpec{GFD: &v1.GFDSpec{PlacementSpec: selecting(v1.Labels{"tier": ""})}},
			facts: inTier(""),
		},
		"an empty value is required": {
			spec:  v1.ClusterPolicySpec{GFD: &v1.GFDSpec{PlacementSpec: selecting(v1.Labels{"tier": ""})}},
			facts: ubuntu("a"),
			off:   []operand.Name{"gpu-feature-discovery"},
		},
		"the selector of all operands": {
			spec: v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{NodeSelector: tier}}, facts: ubuntu("a"),
			off: []operand.Name{
				"driver",
				"container-toolkit",
				"device-plugin",
				"operator-validator",
				"gpu-feature-discovery",
				"dcgm",
				"dcgm-exporter",
				"node-status-exporter",
			},
		},
		"an operand's own selector replaces that of all": {
			spec: v1.ClusterPolicySpec{
				DaemonSets:   &v1.DaemonSetsSpec{NodeSelector: tier},
				DCGMExporter: &v1.DCGMExporterSpec{PlacementSpec: selecting(v1.Labels{"site": "b"})},
			},
			facts: inTier("gpu"), off: []operand.Name{"dcgm-exporter"},
		},
		"a selector of node discovery affects no label": {
			spec: v1.ClusterPolicySpec{NodeDiscovery: &v1.NodeDiscoverySpec{PlacementSpec: selecting(tier)}}, facts: ubuntu("a"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := decide(t, test.spec)
			want := labelled(nil)
			for _, operand := range test.off {
				delete(want, operand.DeployLabel())
				delete(want, anchor+string(operand))
			}
			for was, current := range map[string]map[string]string{
				"new": {"kubernetes.io/hostname": "a"}, "old": labelled(nil),
			} {
				got := after(current, p.NodeLabels(test.facts, current, plan.ReadyPods{Injector: true}))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("labels of the %s node, -want +got:\n%s", was, diff)
				}
			}
		})
	}
}

// A removed label must not remove the driver from a node: the selector only applies to nodes without one.
func TestNodeRetainsItsDriver(t *testing.T) {
	for name, spec := range map[string]v1.ClusterPolicySpec{
		"of the driver": {Driver: &v1.DriverSpec{PlacementSpec: selecting(tier)}},
		"of all":        {DaemonSets: &v1.DaemonSetsSpec{NodeSelector: tier}},
	} {
		t.Run(name, func(t *testing.T) {
			facts, current := hasDriver(ubuntu("a")), labelled(nil)
			p := plan.Compute(decide(t, spec), nil, []nodeinfo.Facts{facts})
			for _, key := range []string{deploy + "driver", "nvidia.com/gpu-operator.pool"} {
				if change, changes := p.NodeLabels(facts, current, plan.ReadyPods{Driver: true, Injector: true})[key]; changes {
					t.Errorf("label %s is changed to %v", key, change)
				}
			}
			for _, step := range p.Steps {
				if step.Operand.Name == "driver" && (step.Action != plan.Apply || len(step.Instances) != 1) {
					t.Errorf("the driver's step is %s with %d instances", step.Action, len(step.Instances))
				}
			}
			field := map[string]string{"of the driver": "spec.driver", "of all": "spec.daemonsets"}[name]
			want := "run kubectl label node a nvidia.com/gpu.deploy.driver- to remove the driver: " +
				field + ".nodeSelector requires label tier=gpu"
			if got := p.ForNode(facts).RetainedDriver; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			// After the command the label is not added again, and the message disappears.
			released := changed(facts, func(f *nodeinfo.Facts) { f.Deploy = nil })
			without := labelled(map[string]*string{deploy + "driver": removed})
			labels := p.NodeLabels(released, without, plan.ReadyPods{Driver: true, Injector: true})
			if change, changes := labels[deploy+"driver"]; changes {
				t.Errorf("the label is changed to %v", *change)
			}
			if got := p.ForNode(released).RetainedDriver; got != "" {
				t.Errorf("the message is still %q", got)
			}
			off := spec
			off.Driver = &v1.DriverSpec{Enabled: new(false), PlacementSpec: selecting(tier)}
			if got := decide(t, off).ForNode(facts).RetainedDriver; got != "" {
				t.Errorf("a driver that is off has the message %q", got)
			}
		})
	}
}

// Only nodes that get a driver make pools, so that no DaemonSet is created for nodes with their own driver.
func TestPoolsOfSelectedNodes(t *testing.T) {
	older := func(f *nodeinfo.Facts) { f.OSVersion = "22.04" }
	nodes := []nodeinfo.Facts{inTier("gpu"), changed(ubuntu("b"), older)}
	spec := v1.ClusterPolicySpec{Driver: &v1.DriverSpec{PlacementSpec: selecting(tier)}}
	p := plan.Compute(decide(t, spec), nil, nodes)
	if len(p.Pools) != 1 || p.Pools[0].Name != "ubuntu24.04-amd64" || p.Pools[0].Nodes != 1 {
		t.Errorf("the pools are %+v", p.Pools)
	}
}

// If no node is selected, the message names the selector.
func TestNoNodeIsSelected(t *testing.T) {
	spec := v1.ClusterPolicySpec{DCGMExporter: &v1.DCGMExporterSpec{PlacementSpec: selecting(tier)}}
	want := stepSummary{
		Action: plan.Remove, State: v1.OperandNotNeeded, Reason: "NotSelected",
		Message: "no GPU node is selected: spec.dcgmExporter.nodeSelector requires label tier=gpu",
	}
	if diff := cmp.Diff(want, compute(t, spec, ubuntu("a"))["dcgm-exporter"]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// An operand that no node could run is not needed, whatever the selector.
	spec = v1.ClusterPolicySpec{MIGManager: &v1.MIGManagerSpec{PlacementSpec: selecting(tier)}}
	want.Reason, want.Message = "NotNeeded", "no node needs it"
	if diff := cmp.Diff(want, compute(t, spec, ubuntu("a"))["mig-manager"]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Operands that are not selected are opted out with the reason. Something must offer the GPUs without the device
// plugin, too, and a node that no operand is selected for is reported as unselected, not as ready.
func TestStagesOfSelectedNodes(t *testing.T) {
	tests := map[string]struct {
		spec             v1.ClusterPolicySpec
		facts            nodeinfo.Facts
		optedOut         []operand.Name
		needsAllocatable bool
		unselected       string
	}{
		"all": {facts: ubuntu("a"), needsAllocatable: true},
		"not the exporter": {
			spec: v1.ClusterPolicySpec{DCGMExporter: &v1.DCGMExporterSpec{PlacementSpec: selecting(tier)}}, facts: ubuntu("a"),
			optedOut: []operand.Name{"dcgm-exporter"}, needsAllocatable: true,
		},
		"not the device plugin": {
			spec: v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{PlacementSpec: selecting(tier)}}, facts: ubuntu("a"),
			optedOut: []operand.Name{"device-plugin"}, needsAllocatable: true,
		},
		"nothing": {
			spec: v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{NodeSelector: tier}}, facts: ubuntu("a"),
			optedOut: []operand.Name{
				"driver",
				"container-toolkit",
				"device-plugin",
				"operator-validator",
				"gpu-feature-discovery",
				"dcgm-exporter",
			},
			unselected: "spec.daemonsets.nodeSelector requires label tier=gpu",
		},
		"nothing, on a node with a driver of its own": {
			spec: v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{NodeSelector: tier}},
			facts: changed(
				ubuntu("a"),
				func(f *nodeinfo.Facts) { f.Deploy = map[string]string{"driver": "pre-installed"} },
			),
			optedOut: []operand.Name{
				"container-toolkit",
				"device-plugin",
				"operator-validator",
				"gpu-feature-discovery",
				"dcgm-exporter",
			},
			unselected: "spec.daemonsets.nodeSelector requires label tier=gpu",
		},
		"nothing but the driver that it has": {
			spec: v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{NodeSelector: tier}}, facts: hasDriver(ubuntu("a")),
			optedOut: []operand.Name{
				"container-toolkit",
				"device-plugin",
				"operator-validator",
				"gpu-feature-discovery",
				"dcgm-exporter",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := decide(t, test.spec).ForNode(test.facts)
			var optedOut []operand.Name
			for _, stage := range append(node.Essential, node.Auxiliary...) {
				if stage.Expectation == plan.OptedOut && stage.Reason == "NotSelected" {
					optedOut = append(optedOut, stage.Operand)
				}
			}
			if diff := cmp.Diff(sorted(test.optedOut), sorted(optedOut)); diff != "" {
				t.Errorf("opted out, -want +got:\n%s", diff)
			}
			if node.NeedsAllocatable != test.needsAllocatable || node.Unselected != test.unselected {
				t.Errorf("it needs allocatable GPUs: %v, unselected: %q", node.NeedsAllocatable, node.Unselected)
			}
		})
	}
}

func sorted(names []operand.Name) map[operand.Name]bool {
	set := map[operand.Name]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// Missing discovery labels remove no operand from a node, although a selector requires one of them. A node without the
// operand does not get it.
func TestSelectorsByMissingLabels(t *testing.T) {
	const feature = "feature.node.kubernetes.io/custom-tier"
	spec := v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{NodeSelector: v1.Labels{feature: "gpu"}}}
	missing := changed(ubuntu("a"), func(f *nodeinfo.Facts) {
		f.HasGPU, f.WasGPU, f.Pool = false, true, "ubuntu24.04-amd64"
		f.Deploy = map[string]string{"driver": "true", "container-toolkit": "true", "device-plugin": "true"}
	})
	tests := map[string]struct {
		facts nodeinfo.Facts
		lost  []string
	}{
		"the GPU label is missing": {facts: missing},
		"all labels are missing": {
			facts: changed(missing, func(f *nodeinfo.Facts) { f.HasDiscoveryLabels, f.OSID, f.OSVersion = false, "", "" }),
		},
		"the GPU label is back, and the other is not": {facts: changed(missing, func(f *nodeinfo.Facts) { f.HasGPU = true })},
		"the label has expired": {
			facts: changed(missing, func(f *nodeinfo.Facts) { f.HasGPU, f.SelectorLabelGraceOver = true, true }),
			lost:  []string{"container-toolkit", "device-plugin"},
		},
		"the label has another value": {
			facts: changed(missing, func(f *nodeinfo.Facts) { f.HasGPU, f.Labels = true, map[string]string{feature: "test"} }),
			lost:  []string{"container-toolkit", "device-plugin"},
		},
		"the user excludes it": {
			facts: changed(missing, func(f *nodeinfo.Facts) { f.ExcludedByLabel = true }),
			lost:  []string{"container-toolkit", "device-plugin", "driver"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := decide(t, spec)
			current := map[string]string{
				deploy + "driver":            "true",
				deploy + "container-toolkit": "true",
				deploy + "device-plugin":     "true",
				"nvidia.com/gpu.present":     "true",
			}
			var lost []string
			for key, value := range p.NodeLabels(test.facts, current, plan.ReadyPods{Driver: true, Injector: true}) {
				if name, isDeploy := strings.CutPrefix(key, deploy); isDeploy && value == nil {
					lost = append(lost, name)
				} else if isDeploy && name != "client" {
					t.Errorf("%s is added", key)
				}
			}
			slices.Sort(lost)
			if diff := cmp.Diff(test.lost, lost); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
