package contract

import (
	"cmp"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
)

const (
	namespace = "gpu-operator"
	helper    = "ghcr.io/clusterpolicy/gpu-operator:v1.0.0"
)

var owner = render.Owner{Name: "cluster-policy", UID: "11111111-2222-3333-4444-555555555555"}

// rendered is one operand of one scenario.
type rendered struct {
	step       plan.Step
	input      operand.Input
	objects    []manifest.Object
	daemonSets []*appsv1.DaemonSet
	err        error
}

// facts returns the facts of the node, with defaults of an ordinary one.
func (n node) facts(name string) nodeinfo.Facts {
	capable := func(value *string) string {
		if value == nil {
			return labels.True
		}
		return *value
	}
	return nodeinfo.Facts{
		Name: name, HasGPU: true, HasDiscoveryLabels: true, Workload: nodeinfo.WorkloadContainer, Runtime: cmp.Or(n.Runtime,
			"containerd"), RuntimeVersion: "2.1.4",
		OSID: cmp.Or(n.OS, "ubuntu"), OSVersion: cmp.Or(n.Version, "24.04"), Architecture: cmp.Or(n.Arch, "amd64"),
		Kernel: cmp.Or(n.Kernel, "6.8.0-60-generic"), Product: n.Product, VGPUGuest: n.VGPUHost, OSTree: n.OSTree,
		MIGCapable: capable(n.MIG), MPSCapable: capable(n.MPS),
	}
}

// render plans the scenario and renders the applied objects of the operands in the table.
func (s scenario) render(catalogue operand.Catalogue, wanted map[operand.Name]bool) map[operand.Name]rendered {
	input := operand.Input{
		Spec: effective.Of(s.Spec), Namespace: namespace, OperatorImage: helper, Optional: map[operand.OptionalKind]bool{},
		DriverToolkit: s.DriverToolkit, OpenShiftCluster: s.OpenShift,
	}
	if s.ConfigMaps != nil {
		known := map[operand.Reference]operand.Content{}
		for name, keys := range s.ConfigMaps {
			known[operand.Reference{Kind: operand.ConfigMap, Name: name}] = operand.Content{Keys: keys}
		}
		input.Contents = catalogue.Assume(input, known)
	}
	for _, kind := range s.Optional {
		input.Optional[kind] = true
	}
	nodes := s.Nodes
	if nodes == nil {
		nodes = []node{{}}
	}
	var facts []nodeinfo.Facts
	for i, node := range nodes {
		facts = append(facts, node.facts(fmt.Sprintf("gpu-%d", i)))
	}
	p := plan.Compute(plan.Decide(catalogue, input), input.Optional, facts)
	byName := map[operand.Name]rendered{}
	for _, step := range p.Steps {
		if !wanted[step.Operand.Name] {
			continue
		}
		result := rendered{step: step, input: input}
		if step.Action == plan.Apply {
			result.objects, result.err = render.Step(p, step, owner, nil)
		}
		for _, object := range result.objects {
			if ds, isDaemonSet := object.(*appsv1.DaemonSet); isDaemonSet {
				result.daemonSets = append(result.daemonSets, ds)
			}
		}
		byName[step.Operand.Name] = result
	}
	return byName
}

// renderAll renders the scenarios of a table.
func (tb table) renderAll(t *testing.T, catalogue operand.Catalogue) map[string]map[operand.Name]rendered {
	t.Helper()
	wanted := map[operand.Name]bool{}
	for _, row := range tb.Rows {
		wanted[row.Operand] = true
	}
	all := map[string]map[operand.Name]rendered{}
	for name, scenario := range tb.Scenarios {
		all[name] = scenario.render(catalogue, wanted)
	}
	return all
}
