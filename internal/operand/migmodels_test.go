package operand_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

func TestCheckMIGModel(t *testing.T) {
	const ofA30 = " is not for NVIDIA-A30: use all-disabled, all-balanced, all-1g.6gb, all-2g.12gb, all-4g.24gb"
	const ofH200 = " is not for NVIDIA-H200: use all-disabled, all-balanced, all-1g.18gb, all-1g.35gb, all-2g.35gb, " +
		"all-3g.71gb, all-4g.71gb, all-7g.141gb"
	tests := []struct{ layout, product, want string }{
		{"all-1g.6gb", "NVIDIA-A30", ""},
		{"all-4g.24gb", "NVIDIA-A30-MIG-1g.6gb", ""},
		{"all-1g.6gb.me", "NVIDIA-A30", ""},
		{"all-balanced", "NVIDIA-A30", ""},
		{"all-1g.7gb", "NVIDIA-B300", ""},
		{"all-3g.40gb", "NVIDIA-H100-80GB-HBM3", ""},
		{"all-3g.20gb", "NVIDIA-A100-SXM4-40GB", ""},
		{"all-1g.5gb", "NVIDIA-A30-MIG-1g.6gb", "MIG layout all-1g.5gb" + ofA30},
		{"all-1g.10gb.me", "NVIDIA-A30", "MIG layout all-1g.10gb.me" + ofA30},
		{"all-1g.10gb", "NVIDIA-H200", "MIG layout all-1g.10gb" + ofH200},
	}
	in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}
	for _, test := range tests {
		NewWithT(t).Expect(in.CheckMIGModel(test.layout, test.product)).To(Equal(test.want), test.layout)
	}
	in.Spec = effective.Of(v1.ClusterPolicySpec{MIGManager: &v1.MIGManagerSpec{
		Config: &v1.MIGManagerConfigSpec{Name: "own"},
	}})
	NewWithT(t).Expect(in.CheckMIGModel("all-1g.5gb", "NVIDIA-A30")).To(BeEmpty(), "layouts of the user")
}
