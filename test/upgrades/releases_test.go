package upgrades

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestReleases: releases of the operator, each with an image of its own and another default version of the driver, take
// over from each other. The policy names the driver's version, so that no node is touched and no driver replaced.
func TestReleases(t *testing.T) {
	t.Parallel()
	const nodes = 3
	e := newEnv(t, envOptions{nodes: nodes, policy: budget(0, "100%")})
	for _, name := range nodeNames(nodes) {
		e.deploy(workload{name: "user-" + name, node: name, gpus: "8"}, 1)
	}
	users := e.users(nodes)
	mark, since := e.mark(), e.watch.now()
	for _, release := range []struct{ image, driver string }{
		{"registry.example.com/gpu-operator:v1.1.0", after},
		{"registry.example.com/gpu-operator:v1.2.0", later},
		{"registry.example.com/gpu-operator:v2.0.0", before},
	} {
		e.managers.stop(e)
		e.startAt("", "OPERATOR_IMAGE="+release.image, "DRIVER_IMAGE=nvcr.io/nvidia/driver:"+release.driver)
		e.awaitReady(nodes)
		e.atRest()
		e.undisturbed(since)
	}
	e.Expect(e.evictions(mark)).To(BeEmpty())
	e.Expect(e.deletions(mark, driverApp)).To(BeEmpty())
	e.Expect(e.users(nodes)).To(Equal(users), "the pods with GPUs keep running")
	e.writesNothing()
}

// TestReleaseWithOtherDefaults: a release with another default image of an operand replaces its pods one by one. One
// with another default driver waits for a user without automatic upgrades, and upgrades node by node with them.
func TestReleaseWithOtherDefaults(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	const nodes = 3
	e := newEnv(t, envOptions{nodes: nodes, stopped: true, policy: func(u *v1.DriverUpgradePolicySpec) {
		budget(1, "1")(u)
		u.AutoUpgrade = pointer(false)
	}})
	start := func(driver, plugin string) {
		e.startAt("", "DRIVER_IMAGE=nvcr.io/nvidia/driver:"+driver,
			"DEVICE_PLUGIN_IMAGE=nvcr.io/nvidia/k8s-device-plugin:"+plugin)
	}
	e.edit(func(s *v1.ClusterPolicySpec) { s.Driver.Version = "" })
	start(before, "v0.18.0")
	e.awaitReady(nodes)
	e.atRest()
	mark, since := e.mark(), e.watch.now()

	e.managers.stop(e)
	start(after, "v0.19.0")
	e.Eventually(e.pending).WithTimeout(readyTime).Should(BeEquivalentTo(nodes))
	e.Eventually(func() []string { return e.imagesOf(pluginApp) }).WithTimeout(readyTime).Should(
		And(HaveLen(nodes), HaveEach(HaveSuffix(":v0.19.0"))))
	e.atRest()
	e.Expect(apimeta.FindStatusCondition(e.policy().Status.Conditions, v1.ConditionReady)).To(And(
		HaveField("Reason", v1.ReasonUpgradePending), HaveField("Message", ContainSubstring("autoUpgrade is false"))))
	e.Expect(e.watch.ready()).To(HaveLen(nodes), "the GPUs of all nodes can still be used")
	e.undisturbed(since)
	e.Expect(e.deletions(mark, "nvidia")).To(BeEmpty(), "the DaemonSet controller replaces the plugin's pods")
	e.Expect(e.updateLimit(pluginApp)).To(Equal(1))

	e.upgradePolicy(func(u *v1.DriverUpgradePolicySpec) { u.AutoUpgrade = pointer(true) })
	e.awaitUpgraded(after, nodeNames(nodes)...)
	e.Expect(e.watch.most(since)).To(HaveLen(1), "the budget")
	e.writesNothing()
}

const pluginApp = "nvidia-device-plugin-daemonset"

// imagesOf returns the images of the first containers of the pods of an app.
func (e *env) imagesOf(app string) []string {
	e.t.Helper()
	var images []string
	for _, pod := range e.podsOf(namespace, app) {
		images = append(images, pod.Spec.Containers[0].Image)
	}
	return images
}

// updateLimit returns how many pods of a DaemonSet an update makes unavailable at a time.
func (e *env) updateLimit(name string) int {
	e.t.Helper()
	ds := &appsv1.DaemonSet{}
	e.Expect(e.quiet.Get(e.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, ds)).To(Succeed())
	e.Expect(ds.Spec.UpdateStrategy.RollingUpdate).NotTo(BeNil())
	return ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue()
}
