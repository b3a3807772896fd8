package runtimeclasses

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// With NRI pods need no RuntimeClass, and the toolkit is what injects.
func TestRuntimeClasses(t *testing.T) {
	for name, test := range map[string]struct {
		cdi, nri, toolkit bool
		want              operand.Decision
	}{
		"the hook": {toolkit: true, want: operand.Accept()},
		"CDI":      {cdi: true, toolkit: true, want: operand.Accept()},
		"NRI": {cdi: true, nri: true, toolkit: true, want: operand.Unnecessary(
			"spec.cdi.nriPluginEnabled is true: pods get GPUs without a RuntimeClass")},
		"NRI without the toolkit": {cdi: true, nri: true, want: operand.Refuse("InvalidSpec",
			"spec.cdi.nriPluginEnabled needs the container toolkit: set spec.toolkit.enabled to true, or remove "+
				"spec.cdi.nriPluginEnabled")},
	} {
		g, o := NewWithT(t), Operand()
		in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{
			CDI:     &v1.CDISpec{Enabled: new(test.cdi), NRIPluginEnabled: new(test.nri)},
			Toolkit: &v1.ToolkitSpec{Enabled: new(test.toolkit)},
		})}
		g.Expect(o.Name).To(BeEquivalentTo("runtime-classes"))
		g.Expect(o.Decide(in)).To(Equal(test.want), name)
		instances, err := o.Instances(in, nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(instances).To(Equal([]operand.Instance{{Values: values{CDI: test.cdi}}}), name)
	}
}
