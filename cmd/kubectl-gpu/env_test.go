package main

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// The operator's variables have the meaning that they have in its environment: default images, of which the spec
// replaces parts, and the driver's proxy.
func TestRenderWithTheOperatorsVariables(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://not-of-the-operator.invalid")
	g := NewWithT(t)
	got := rendering(t, `{toolkit: {version: v1.18.0}}`,
		"--env", "DRIVER_IMAGE=mirror.local/a/driver:580.1", "--env", "DRIVER_IMAGE=mirror.local/nvidia/driver:580.2",
		"--env", "CONTAINER_TOOLKIT_IMAGE=mirror.local/nvidia/container-toolkit:v1.19.1", "--env", "GFD_IMAGE=gfd",
		"--env", "HTTP_PROXY=http://proxy.local:3128/?a=b")
	g.Expect(got.code).To(Equal(0), got.errOut)
	g.Expect(got.errOut).To(ContainSubstring("the operator's variable GFD_IMAGE is ignored: "))
	driver := mainContainer(t, got, "nvidia-driver-daemonset")
	g.Expect(driver.Image).To(HavePrefix("mirror.local/nvidia/driver:580.2-"))
	g.Expect(driver.Env).To(ContainElement(corev1.EnvVar{Name: "HTTP_PROXY", Value: "http://proxy.local:3128/?a=b"}))
	g.Expect(driver.Env).NotTo(ContainElement(HaveField("Name", "HTTPS_PROXY")))
	toolkit := mainContainer(t, got, "nvidia-container-toolkit-daemonset")
	g.Expect(toolkit.Image).To(Equal("mirror.local/nvidia/container-toolkit:v1.18.0"))
}

func TestRenderRefusesOtherVariables(t *testing.T) {
	for assignment, want := range map[string]string{
		"DRIVER_IMAGE": "--env DRIVER_IMAGE: give NAME=VALUE",
		"DRIVER_IMGE=a/driver:1": "--env DRIVER_IMGE: the operator reads no such variable for the objects: give one of " +
			"CONTAINER_TOOLKIT_IMAGE, ",
		"OPERATOR_IMAGE=a/b:1": "are --image and --namespace",
	} {
		g := NewWithT(t)
		got := rendering(t, "{}", "--env", assignment)
		g.Expect(got.code).To(Equal(2), "wrong usage")
		g.Expect(got.errOut).To(ContainSubstring(want))
		g.Expect(got.out).To(BeEmpty())
	}
}

// mainContainer returns the first container of a DaemonSet.
func mainContainer(t *testing.T, got output, name string) corev1.Container {
	t.Helper()
	g, set := NewWithT(t), appsv1.DaemonSet{}
	all := decoded(t, got.out)
	g.Expect(all).To(HaveKey("DaemonSet " + name))
	data, err := json.Marshal(all["DaemonSet "+name].Object)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(json.Unmarshal(data, &set)).To(Succeed())
	return set.Spec.Template.Spec.Containers[0]
}
