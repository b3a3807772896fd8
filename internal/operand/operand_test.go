package operand_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

func TestKindsOfDecisions(t *testing.T) {
	g := NewWithT(t)
	g.Expect(operand.Disabled("spec.a.enabled")).To(Equal(operand.Decision{
		Choice: operand.Absent, Reason: "DisabledBySpec", Message: "spec.a.enabled is false",
	}))
	g.Expect(operand.Unnecessary("no node needs it")).To(Equal(operand.Decision{
		Choice: operand.Absent, Reason: "DisabledBySpec", Message: "no node needs it", OptionalForDependents: true,
	}))
	g.Expect(operand.Refuse("InvalidSpec", "no")).To(Equal(operand.Decision{
		Choice: operand.Refused, Reason: "InvalidSpec", Message: "no",
	}))
}

func TestLabelsOfAnOperand(t *testing.T) {
	g := NewWithT(t)
	o := operand.Operand{Name: "driver", Workloads: []nodeinfo.Workload{"container"}}
	g.Expect(o.AnchorLabel()).To(BeEmpty())
	g.Expect(o.Name.DeployLabel()).To(Equal("nvidia.com/gpu.deploy.driver"))
	o.DaemonSet = "nvidia-driver-daemonset"
	g.Expect(o.AnchorLabel()).To(Equal("clusterpolicy.github.io/driver"))
	g.Expect(o.ServesWorkload("container")).To(BeTrue())
	g.Expect(o.ServesWorkload("vm-vgpu")).To(BeFalse())
	g.Expect(o.Retains(nodeinfo.Facts{Deploy: map[string]string{"driver": "true"}})).To(BeFalse())
	o.UpdatesOnDelete = true
	g.Expect(o.Retains(nodeinfo.Facts{Deploy: map[string]string{"driver": "true"}})).To(BeTrue())
	g.Expect(o.Retains(nodeinfo.Facts{})).To(BeFalse())
}

func TestVariant(t *testing.T) {
	for want, of := range map[string][3]string{
		"": {"", "", "a"}, "ubuntu24.04-amd64": {"ubuntu24.04-amd64", "containerd", "a"},
		"containerd": {"", "containerd", ""}, "containerd-a": {"", "containerd", "a"},
	} {
		NewWithT(t).Expect(operand.Variant(of[0], of[1], of[2])).To(Equal(want))
	}
}

// The selector of an operand replaces that of all.
func TestSelects(t *testing.T) {
	in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{
		NodeSelector: v1.Labels{"team": "ml", "zone": "1"},
	}})}
	own := operand.Operand{Placement: func(operand.Input) operand.Placement {
		return operand.Placement{Field: "spec.a", PlacementSpec: v1.PlacementSpec{NodeSelector: v1.Labels{"team": ""}}}
	}}
	for name, test := range map[string]struct {
		o      operand.Operand
		labels map[string]string
		want   string
	}{
		"all": {labels: map[string]string{"team": "ml", "zone": "1"}},
		"another value": {
			labels: map[string]string{"team": "x", "zone": "1"},
			want:   "spec.daemonsets.nodeSelector requires label team=ml",
		},
		"none":        {want: "spec.daemonsets.nodeSelector requires label team=ml"},
		"its own":     {o: own, labels: map[string]string{"team": ""}},
		"not its own": {o: own, labels: map[string]string{"zone": "1"}, want: "spec.a.nodeSelector requires label team="},
	} {
		want := operand.Accept()
		if test.want != "" {
			want = operand.Decision{Choice: operand.Absent, Reason: "NotSelected", Message: test.want}
		}
		NewWithT(t).Expect(in.Selects(&test.o, nodeinfo.Facts{Labels: test.labels})).To(Equal(want), name)
	}
}
