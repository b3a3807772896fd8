//go:build linux

package node_test

import (
	"os"
	"time"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

const (
	// tenant is a user's Deployment with a GPU.
	tenant           = "tenant"
	requestedKey     = "nvidia.com/gpu-driver-upgrade-requested"
	upgradeStateKey  = "nvidia.com/gpu-driver-upgrade-state"
	upgradedVersion  = "600.20.02"
	upgradeBlockedBy = "PDB default/tenant allows 0 disruptions"
)

// checkUpgrade lets the operator upgrade the driver of a node on which a user's pod has a GPU. The new image cannot be
// pulled at first, which disturbs nothing; then a PodDisruptionBudget protects the pod, which is named; then the pod is
// evicted, the driver replaced and validated, and the pod runs again.
func (b *env) checkUpgrade() {
	b.runTenant(corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpuResource: resource.MustParse("1")}},
	}}})
	running, installed := b.podsOf(metav1.NamespaceDefault, tenant), b.podsOf(namespace, driver.app)
	begin := time.Now()
	b.patchPolicy(map[string]any{"spec": map[string]any{"driver": map[string]any{
		"version": upgradedVersion, "upgradePolicy": map[string]any{"autoUpgrade": true},
	}}})
	b.awaitUpgrade(And(HaveField("Reason", v1.ReasonUpgradePullFailed),
		HaveField("Message", ContainSubstring(upgradedVersion))), "1m")
	b.t.Logf("the image that does not exist was reported after %s", since(begin))
	b.Expect(b.node(b.WithT).Spec.Unschedulable).To(BeFalse(), "nothing was cordoned")
	b.Expect(b.podsOf(metav1.NamespaceDefault, tenant)).To(Equal(running), "nothing was evicted")
	b.Expect(b.podsOf(namespace, driver.app)).To(Equal(installed), "the driver was not replaced")

	image, err := node.DriverImage(os.Getenv(standInVariable), driverLibrary(b.t),
		upgradedVersion)
	b.Expect(err).NotTo(HaveOccurred())
	b.load(image)
	begin = time.Now()
	_, err = b.client.CoreV1().Nodes().Patch(b.t.Context(), machineName, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+requestedKey+`":"true"}}}`), metav1.PatchOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	b.awaitUpgrade(And(HaveField("Reason", v1.ReasonUpgradeBlocked),
		HaveField("Message", ContainSubstring(upgradeBlockedBy))), "1m")
	b.t.Logf("the PodDisruptionBudget was reported %s after the request", since(begin))
	b.Expect(b.node(b.WithT).Spec.Unschedulable).To(BeTrue(), "the node is cordoned before pods are evicted")
	b.Expect(b.podsOf(metav1.NamespaceDefault, tenant)).To(Equal(running), "the pod is protected")
	b.Expect(b.podsOf(namespace, driver.app)).To(Equal(installed), "the driver stays while a pod uses a GPU")

	b.Expect(b.client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Delete(b.t.Context(), tenant,
		metav1.DeleteOptions{})).To(Succeed())
	begin = time.Now()
	b.awaitUpgraded()
	b.t.Logf("the driver was replaced and validated %s after the budget was removed", since(begin))
	b.Eventually(func() []types.UID { return b.podsOf(metav1.NamespaceDefault, tenant) }, "1m", "200ms").
		Should(And(HaveLen(1), Not(Equal(running))), b.describe)
	b.Expect(b.checkInjections(begin)).To(HaveEach(HaveField("Driver", upgradedVersion)))
	b.Expect(b.client.AppsV1().Deployments(metav1.NamespaceDefault).Delete(b.t.Context(), tenant,
		metav1.DeleteOptions{})).To(Succeed())
	b.Eventually(func() []types.UID { return b.podsOf(metav1.NamespaceDefault, tenant) }, "1m", "200ms").Should(BeEmpty())
}

// runTenant runs a pod with a GPU, which its spec requests, and which a PodDisruptionBudget protects.
func (b *env) runTenant(spec corev1.PodSpec) {
	b.t.Helper()
	spec.TerminationGracePeriodSeconds = new(int64(1))
	spec.Containers[0].Name, spec.Containers[0].Image = tenant, "example.com/pause:1"
	selector := metav1.LabelSelector{MatchLabels: map[string]string{"app": tenant}}
	_, err := b.client.AppsV1().Deployments(metav1.NamespaceDefault).Create(b.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: tenant},
		Spec: appsv1.DeploymentSpec{Selector: &selector, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: selector.MatchLabels}, Spec: spec,
		}},
	}, metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	_, err = b.client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Create(b.t.Context(),
		&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: tenant},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: new(intstr.FromInt32(0)), Selector: &selector,
			},
		}, metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	b.Eventually(func() []types.UID { return b.podsOf(metav1.NamespaceDefault, tenant) }, "1m", "200ms").
		Should(HaveLen(1), b.describe)
}

// podsOf returns the UIDs of the running pods with this app label.
func (b *env) podsOf(namespace, app string) []types.UID {
	b.t.Helper()
	pods, err := b.client.CoreV1().Pods(namespace).List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	b.Expect(err).NotTo(HaveOccurred())
	var found []types.UID
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == corev1.PodRunning {
			found = append(found, pods.Items[i].UID)
		}
	}
	return found
}

// awaitUpgrade waits until the policy's status has this upgrade for the node.
func (b *env) awaitUpgrade(expected gomegatypes.GomegaMatcher, within string) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.Nodes).To(HaveLen(1))
		g.Expect(policy.Status.Nodes[0].Upgrade).To(HaveValue(expected), "%+v", policy.Status)
	}, within, "100ms").Should(Succeed(), b.describe)
}

// awaitUpgraded waits until the upgrade of the node is done, and the node can be used.
func (b *env) awaitUpgraded() {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		found := b.node(g)
		g.Expect(found.Labels).To(HaveKeyWithValue(upgradeStateKey, "upgrade-done"))
		g.Expect(found.Spec.Unschedulable).To(BeFalse())
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.State).To(Equal(v1.StateReady), "%+v", policy.Status)
	}, "3m", "200ms").Should(Succeed(), b.describe)
}
