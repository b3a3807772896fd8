package integration

import (
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// theOperatorsPodIsRestricted: the operator's namespace admits privileged pods, for the operands; the operator's own
// pod is restricted.
func (e *env) theOperatorsPodIsRestricted() {
	const strict = "strict"
	e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: strict, Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}}})
	e.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: strict, Name: account}})
	admin := kubernetes.NewForConfigOrDie(e.cluster.Config)
	admitted := func(change func(*corev1.PodSpec)) error {
		template := e.shippedDeployment().Spec.Template
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Name = account
		change(&pod.Spec)
		_, err := admin.CoreV1().Pods(strict).Create(e.t.Context(), pod, metav1.CreateOptions{
			DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		return err
	}
	e.Expect(admitted(func(*corev1.PodSpec) {})).To(Succeed())

	container := func(change func(*corev1.SecurityContext)) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { change(s.Containers[0].SecurityContext) }
	}
	for name, test := range map[string]struct {
		change  func(*corev1.PodSpec)
		refusal string
	}{
		"as root":         {func(s *corev1.PodSpec) { s.SecurityContext.RunAsNonRoot = nil }, "runAsNonRoot != true"},
		"any system call": {func(s *corev1.PodSpec) { s.SecurityContext.SeccompProfile = nil }, "seccompProfile"},
		"capabilities": {
			container(func(c *corev1.SecurityContext) { c.Capabilities = nil }), "unrestricted capabilities",
		},
		"more rights by exec": {
			container(func(c *corev1.SecurityContext) { c.AllowPrivilegeEscalation = nil }), "allowPrivilegeEscalation != false",
		},
		"the host's network": {func(s *corev1.PodSpec) { s.HostNetwork = true }, "hostNetwork"},
	} {
		e.t.Run("refused: "+name, func(t *testing.T) { e.in(t).Expect(admitted(test.change)).To(forbidden(test.refusal)) })
	}
	e.Expect(e.shippedDeployment().Spec.Template.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem).
		To(HaveValue(BeTrue()))
}

// TestTheOperatorMovesOneAtATime: the two replicas run on two nodes, and a simultaneous drain of both nodes evicts
// one first.
func TestTheOperatorMovesOneAtATime(t *testing.T) {
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	e.create(e.shippedDeployment())
	admin := kubernetes.NewForConfigOrDie(e.cluster.Config)
	pods := func() []corev1.Pod {
		list, err := admin.CoreV1().Pods(namespace).List(t.Context(),
			metav1.ListOptions{LabelSelector: labels.App + "=" + account})
		e.Expect(err).NotTo(HaveOccurred())
		return list.Items
	}
	// The scheduler may have known only one of the new nodes when it placed them: then reschedule one.
	e.Eventually(func() []corev1.Pod {
		placed := pods()
		if len(placed) == 2 && placed[0].Spec.NodeName != "" && placed[0].Spec.NodeName == placed[1].Spec.NodeName {
			e.Expect(client.IgnoreNotFound(e.client.Delete(t.Context(), &placed[0], client.GracePeriodSeconds(0)))).To(Succeed())
		}
		return placed
	}).WithPolling(time.Second).Should(ConsistOf(
		HaveField("Spec.NodeName", "gpu-00000"), HaveField("Spec.NodeName", "gpu-00001")))
	e.Eventually(func() (*policyv1.PodDisruptionBudget, error) {
		return admin.PolicyV1().PodDisruptionBudgets(namespace).Get(t.Context(), account, metav1.GetOptions{})
	}).Should(HaveField("Status.CurrentHealthy", int32(2)))
	evict := func(pod corev1.Pod) error {
		return admin.CoreV1().Pods(namespace).EvictV1(t.Context(),
			&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}})
	}
	both := pods()
	e.Expect(evict(both[0])).To(Succeed())
	e.Expect(evict(both[1])).To(Satisfy(apierrors.IsTooManyRequests))
}

// networkPoliciesOnlySelectTheOperator checks the selectors: there is no network to test the policies.
func (e *env) networkPoliciesOnlySelectTheOperator() {
	e.installComponent("config/network-policy")
	admin := kubernetes.NewForConfigOrDie(e.cluster.Config)
	found, err := admin.NetworkingV1().NetworkPolicies(namespace).List(e.t.Context(), metav1.ListOptions{})
	e.Expect(err).NotTo(HaveOccurred())
	directions := map[string][]networkingv1.PolicyType{}
	for i := range found.Items {
		policy := &found.Items[i]
		directions[policy.Name] = policy.Spec.PolicyTypes
		e.Expect(policy.Spec.PodSelector).To(Equal(metav1.LabelSelector{MatchLabels: map[string]string{labels.App: account}}))
	}
	e.Expect(directions).To(Equal(map[string][]networkingv1.PolicyType{
		"gpu-operator": {networkingv1.PolicyTypeIngress}, "gpu-operator-egress": {networkingv1.PolicyTypeEgress}}))
	template := e.shippedDeployment().Spec.Template
	e.Expect(template.Labels).To(HaveKeyWithValue(labels.App, account))
	e.Expect(template.Spec.Containers[0].Ports).To(ContainElement(And(HaveField("Name", "metrics"),
		HaveField("ContainerPort", int32(8080)))))
}

// shippedDeployment returns the operator's Deployment, as config/default installs it.
func (e *env) shippedDeployment() *appsv1.Deployment {
	e.t.Helper()
	objects, err := cluster.Render(filepath.Join(repo, "config/default"))
	e.Expect(err).NotTo(HaveOccurred())
	var deployments []*unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			deployments = append(deployments, object)
		}
	}
	e.Expect(deployments).To(HaveLen(1))
	deployment := &appsv1.Deployment{}
	e.Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(deployments[0].Object, deployment,
		true)).To(Succeed())
	return deployment
}
