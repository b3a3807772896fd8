package main

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
)

// A node that is not to run the exporter is named, and no failure. One whose exporter is missing is asked.
func TestNodesWithoutAnExporter(t *testing.T) {
	virtual := v1.ClusterPolicySpec{SandboxWorkloads: &v1.SandboxWorkloadsSpec{Enabled: new(true)}}
	selective := v1.ClusterPolicySpec{DCGMExporter: &v1.DCGMExporterSpec{
		PlacementSpec: v1.PlacementSpec{NodeSelector: v1.Labels{"team": "a"}},
	}}
	for name, test := range map[string]struct {
		spec  v1.ClusterPolicySpec
		label [2]string
		pod   bool
		// want is the cause; empty for a node that is asked.
		want string
	}{
		"a pod":              {pod: true},
		"a missing pod":      {},
		"paused for a while": {label: [2]string{"nvidia.com/gpu.deploy.dcgm-exporter", "paused-for-mig-change"}},
		"excluded": {label: [2]string{"nvidia.com/gpu.deploy.operands", "false"},
			want: `label nvidia.com/gpu.deploy.operands is "false"`},
		"excluded, but its pod is left": {label: [2]string{"nvidia.com/gpu.deploy.operands", "false"}, pod: true},
		"kept off": {label: [2]string{"nvidia.com/gpu.deploy.dcgm-exporter", "false"},
			want: `label nvidia.com/gpu.deploy.dcgm-exporter is "false"`},
		"on the host": {label: [2]string{"nvidia.com/gpu.deploy.dcgm-exporter", "pre-installed"},
			want: `label nvidia.com/gpu.deploy.dcgm-exporter is "pre-installed"`},
		"for virtual machines": {spec: virtual, label: [2]string{"nvidia.com/gpu.workload.config", "vm-passthrough"},
			want: "workload vm-passthrough is not supported yet: label the node nvidia.com/gpu.workload.config=container"},
		"not selected": {spec: selective, want: "spec.dcgmExporter.nodeSelector requires label team=a"},
		"selected":     {spec: selective, label: [2]string{"team", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{
				"nvidia.com/gpu.present": "true", test.label[0]: test.label[1],
			}}}
			pods := map[string]*corev1.Pod{}
			if test.pod {
				pods["a"] = &corev1.Pod{}
			}
			names, without, err := splitExempt(
				&v1.ClusterPolicy{Spec: test.spec}, []nodeinfo.Facts{observe.Facts(node)}, pods)
			g.Expect(err).NotTo(HaveOccurred())
			if test.want == "" {
				g.Expect(names).To(Equal([]string{"a"}))
				g.Expect(without).To(BeEmpty())
				return
			}
			g.Expect(names).To(BeEmpty())
			g.Expect(without).To(Equal([]noAnswer{{Node: "a", Message: test.want}}))
		})
	}
	names, without, err := splitExempt(nil, []nodeinfo.Facts{{Name: "a", ExcludedByLabel: true}}, nil)
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names).To(Equal([]string{"a"}), "without a policy")
	g.Expect(without).To(BeEmpty())
	g.Expect(withoutText([]noAnswer{{Node: "a", Message: "x"}})).To(Equal("No exporter is to run on a: x.\n"))
}
