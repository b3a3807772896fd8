package operand_test

import (
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

func TestWorkloadOf(t *testing.T) {
	on := func(byDefault v1.Workload) *v1.SandboxWorkloadsSpec {
		return &v1.SandboxWorkloadsSpec{Enabled: new(true), DefaultWorkload: byDefault}
	}
	const refused = "workload vm-vgpu is not supported yet: label the node nvidia.com/gpu.workload.config=container"
	tests := map[string]struct {
		spec    *v1.SandboxWorkloadsSpec
		label   nodeinfo.Workload
		want    nodeinfo.Workload
		message string
	}{
		"no block and no label":                {want: "container"},
		"the label is ignored without a block": {label: "vm-vgpu", want: "container"},
		"the label is ignored while sandbox workloads are disabled": {
			spec: &v1.SandboxWorkloadsSpec{
				Enabled:         new(false),
				DefaultWorkload: "vm-passthrough",
			}, label: "vm-vgpu", want: "container",
		},
		"the default is ignored without enabled": {
			spec: &v1.SandboxWorkloadsSpec{DefaultWorkload: "vm-vgpu"},
			want: "container",
		},
		"no label and no default": {spec: on(""), want: "container"},
		"the label":               {spec: on(""), label: "vm-vgpu", want: "vm-vgpu", message: refused},
		"the label overrides the default": {
			spec:    on("vm-passthrough"),
			label:   "vm-vgpu",
			want:    "vm-vgpu",
			message: refused,
		},
		"a node for containers by label": {spec: on("vm-passthrough"), label: "container", want: "container"},
		"an invalid label is ignored":    {spec: on("container"), label: "vm", want: "container"},
		"the default": {
			spec: on("vm-passthrough"), want: "vm-passthrough",
			message: "workload vm-passthrough is not supported yet: " +
				"label the node nvidia.com/gpu.workload.config=container",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{SandboxWorkloads: test.spec})}
			node := nodeinfo.Facts{Workload: test.label}
			if got := in.WorkloadOf(node); got != test.want {
				t.Errorf("the workload is %q, want %q", got, test.want)
			}
			if got := in.CheckWorkloadSupported(node); got.Message != test.message ||
				(got.Reason == v1.ReasonNotSupportedYet) != (test.message != "") {
				t.Errorf("served: %q: %q, want %q", got.Reason, got.Message, test.message)
			}
			kept := len(in.ContainerNodes([]nodeinfo.Facts{node, {Workload: "container"}}))
			if (kept == 2) != (test.want == "container") {
				t.Errorf("of two nodes %d are for containers", kept)
			}
		})
	}
}

// A label that names no workload, or is not read, is described.
func TestUnknownWorkload(t *testing.T) {
	const message = `label nvidia.com/gpu.workload.config is "passthrough", ` +
		`which is none of ["container" "vm-passthrough" "vm-vgpu"]: the node is served for workload `
	const notRead = `label nvidia.com/gpu.workload.config is "vm-vgpu", ` +
		`which is not read without spec.sandboxWorkloads.enabled: the node is served for workload container`
	tests := map[string]struct {
		enabled   bool
		byDefault v1.Workload
		label     nodeinfo.Workload
		want      string
	}{
		"not read":            {label: "vm-vgpu", want: notRead},
		"wrong, not read":     {label: "passthrough", want: message + "container"},
		"for containers":      {label: "container"},
		"no label":            {enabled: true},
		"a workload":          {enabled: true, label: "vm-passthrough"},
		"no workload":         {enabled: true, label: "passthrough", want: message + "container"},
		"no workload, set up": {enabled: true, byDefault: "vm-vgpu", label: "passthrough", want: message + "vm-vgpu"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sandbox := &v1.SandboxWorkloadsSpec{Enabled: new(test.enabled), DefaultWorkload: test.byDefault}
			in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{SandboxWorkloads: sandbox})}
			if got := in.UnknownWorkload(nodeinfo.Facts{Workload: test.label}); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
