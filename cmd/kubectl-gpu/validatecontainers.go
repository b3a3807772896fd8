package main

import (
	"slices"

	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
)

// coreOSRelease is a release of Red Hat CoreOS, which has its driver toolkit.
const coreOSRelease = "419.94.202501010000-0"

// systems stand for the nodes that a policy may be for: pods of a driver have one more container on OpenShift.
var systems = []nodeinfo.Facts{
	{
		StandsIn: true, HasGPU: true, OSID: "ubuntu", OSVersion: "24.04", Architecture: "amd64", Kernel: "6.8.0-60-generic",
		Runtime: "containerd", MIGCapable: "true", MPSCapable: "true",
	},
	{
		StandsIn: true, HasGPU: true, OSID: "rhcos", OSVersion: "4.19", OSTree: coreOSRelease, Architecture: "amd64",
		Kernel: "5.14.0-570.el9.x86_64", Runtime: "cri-o", Distribution: nodeinfo.LayoutOpenShift,
	},
}

// unknownContainers returns a problem for each container for which a valid policy has resources, and which its pods
// have on none of the systems: the operator refuses the operand. What it refuses for another reason is not among them.
func unknownContainers(document []byte) ([]problem, error) {
	policy := v1.ClusterPolicy{}
	if err := yaml.Unmarshal(document, &policy); err != nil {
		return nil, err
	}
	catalogue, err := operands.Catalogue()
	if err != nil {
		return nil, err
	}
	in := operand.Input{
		Spec: effective.Of(policy.Spec), OperatorImage: image.Own(),
		DriverToolkit: map[string]string{coreOSRelease: "example.com/driver-toolkit"},
	}
	names := map[operand.Name][]string{}
	for _, system := range systems {
		p := plan.Compute(plan.Decide(catalogue, in), nil, []nodeinfo.Facts{system})
		for _, step := range p.Steps {
			if of, err := render.ContainerNames(p, step); err == nil {
				names[step.Operand.Name] = append(names[step.Operand.Name], of...)
			}
		}
	}
	var unknown []problem
	for i := range catalogue {
		o := &catalogue[i]
		slices.Sort(names[o.Name])
		for _, sentence := range render.UnknownContainers(in.PlacementOf(o), slices.Compact(names[o.Name])) {
			unknown = append(unknown, problemIn(sentence))
		}
	}
	return unknown, nil
}
