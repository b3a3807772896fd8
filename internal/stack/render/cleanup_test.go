package render_test

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
)

// Hosts are cleaned up on the nodes that ask for it alone, whatever their taints are, by pods that are set up like
// those of the operands.
func TestCleanUp(t *testing.T) {
	g := NewWithT(t)
	s := situation{spec: v1.ClusterPolicySpec{
		DaemonSets: &v1.DaemonSetsSpec{PriorityClassName: "mine"},
		Global:     &v1.GlobalSpec{ImagePullSecrets: []v1.ObjectName{"registry"}},
		Toolkit: &v1.ToolkitSpec{ContainerSpec: v1.ContainerSpec{Env: []v1.EnvVar{
			{Name: "CONTAINERD_CONFIG", Value: "/opt/runtime/nvidia.toml"},
			{Name: "CONTAINERD_SOCKET", Value: "/opt/runtime/containerd.sock"},
			{Name: "RUNTIME_DROP_IN_CONFIG", Value: "/opt/runtime/d/gpu.toml"},
			{Name: "RUNTIME_DROP_IN_CONFIG_HOST_PATH", Value: "/opt/runtime/d/host.toml"},
		}}},
	}}
	objects, err := render.Cleanup(catalogue(t), s.plan(t).Input, owner)
	g.Expect(err).NotTo(HaveOccurred())
	var sets []*appsv1.DaemonSet
	for _, object := range objects {
		g.Expect(object.GetOwnerReferences()).To(ConsistOf(HaveField("Name", owner.Name)), object.GetName())
		if ds, is := object.(*appsv1.DaemonSet); is {
			sets = append(sets, ds)
		}
	}
	g.Expect(sets).To(HaveLen(1))
	template := sets[0].Spec.Template
	g.Expect(template.Labels).To(And(HaveKeyWithValue("app.kubernetes.io/managed-by", "gpu-operator"),
		HaveKeyWithValue("nvidia.com/gpu-operator.operand", "node-cleanup")))
	pod := template.Spec
	g.Expect(pod.NodeSelector).To(Equal(map[string]string{"nvidia.com/gpu-operator.cleanup": "true"}))
	g.Expect(pod.Tolerations).To(Equal([]corev1.Toleration{{Operator: "Exists"}}))
	g.Expect(pod.PriorityClassName).To(Equal("mine"))
	g.Expect(pod.ImagePullSecrets).To(Equal([]corev1.LocalObjectReference{{Name: "registry"}}))
	g.Expect(append(pod.InitContainers, pod.Containers...)).To(And(HaveLen(2), HaveEach(And(
		HaveField("Image", helper),
		HaveField("TerminationMessagePolicy", Equal(corev1.TerminationMessageFallbackToLogsOnError)),
	))))
	g.Expect(pod.HostPID).To(BeTrue(), "the container runtime could not be signalled")
	g.Expect(pod.InitContainers[0].Args).To(And(ContainElements("--runtime-file=/opt/runtime/nvidia.toml",
		"--runtime-file=/opt/runtime/d/gpu.toml", "--runtime-file=/opt/runtime/d/host.toml",
		"--runtime-socket=/opt/runtime/containerd.sock"), Not(ContainElement("--keep-runtimes"))))
}

// The clean-up signals no container runtime that the toolkit must not signal.
func TestCleanUpKeepsRuntimesAsTheToolkitDoes(t *testing.T) {
	mode := func(value string) []v1.EnvVar { return []v1.EnvVar{{Name: "RUNTIME_RESTART_MODE", Value: value}} }
	for name, test := range map[string]struct {
		spec  v1.ContainerSpec
		keeps bool
	}{
		"by signal":               {spec: v1.ContainerSpec{Env: mode("signal")}},
		"not at all":              {spec: v1.ContainerSpec{Env: mode("none")}, keeps: true},
		"by systemd":              {spec: v1.ContainerSpec{Env: mode("systemd")}, keeps: true},
		"not at all, by argument": {spec: v1.ContainerSpec{Args: []string{"--restart-mode=none"}}, keeps: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := situation{spec: v1.ClusterPolicySpec{Toolkit: &v1.ToolkitSpec{ContainerSpec: test.spec}}}
			objects, err := render.Cleanup(catalogue(t), s.plan(t).Input, owner)
			g.Expect(err).NotTo(HaveOccurred())
			var args []string
			for _, object := range objects {
				if ds, is := object.(*appsv1.DaemonSet); is {
					args = append(args, ds.Spec.Template.Spec.InitContainers[0].Args...)
				}
			}
			g.Expect(slices.Contains(args, "--keep-runtimes")).To(Equal(test.keeps), "%v", args)
		})
	}
}
