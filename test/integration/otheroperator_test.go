package integration

import (
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// noticeTime is how soon a running operator notices NVIDIA's, and that it is gone, with the faster timing.
const noticeTime = 15 * time.Second

// nvidiasOperator returns the Deployment of NVIDIA's chart in another namespace than the operator's.
func nvidiasOperator() *appsv1.Deployment {
	pods := map[string]string{
		"app": "gpu-operator", "app.kubernetes.io/component": "gpu-operator",
		"nvidia.com/gpu-driver-upgrade-drain.skip": "true",
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "nvidia", Name: "gpu-operator", Labels: pods},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{
				"app": "gpu-operator", "app.kubernetes.io/component": "gpu-operator",
			}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pods},
				Spec: corev1.PodSpec{
					ServiceAccountName: "gpu-operator",
					Containers: []corev1.Container{{
						Name: "gpu-operator", Image: "nvcr.io/nvidia/gpu-operator:v26.3.1",
						Command: []string{"gpu-operator"}, Args: []string{"--leader-elect"},
						Env: []corev1.EnvVar{{Name: "OPERATOR_NAMESPACE", Value: "nvidia"}},
					}},
					TerminationGracePeriodSeconds: new(int64(1)),
				},
			},
		},
	}
}

// installNVIDIAs creates the Deployment and waits for its pod.
func (e *env) installNVIDIAs() *appsv1.Deployment {
	e.t.Helper()
	deployment := nvidiasOperator()
	e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: deployment.Namespace}})
	e.createRightsOfNVIDIAs(deployment.Namespace)
	e.create(deployment)
	e.awaitPodsOfNVIDIAs(1)
	return deployment
}

// createRightsOfNVIDIAs creates the account of NVIDIA's operator, and what its chart permits it about policies. The
// names of the chart would be taken over by installers of this operator.
func (e *env) createRightsOfNVIDIAs(namespace string) {
	e.t.Helper()
	meta := metav1.ObjectMeta{Name: "nvidias-operator"}
	e.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gpu-operator"}})
	e.create(&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"nvidia.com"}, Resources: []string{"*"},
		Verbs: []string{"create", "get", "list", "watch", "update", "patch", "delete"},
	}}})
	e.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "gpu-operator"}},
	})
}

// awaitPodsOfNVIDIAs waits until its Deployment has this many pods.
func (e *env) awaitPodsOfNVIDIAs(count int) {
	e.t.Helper()
	pods := kubernetes.NewForConfigOrDie(e.cluster.Config).CoreV1().Pods("nvidia")
	e.Eventually(func() ([]corev1.Pod, error) {
		list, err := pods.List(e.t.Context(), metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}).WithTimeout(eventually).Should(HaveLen(count))
}

// scaleNVIDIAs changes the number of pods of NVIDIA's operator.
func (e *env) scaleNVIDIAs(deployment *appsv1.Deployment, replicas int32) {
	e.t.Helper()
	e.Expect(e.edit(deployment, func() { deployment.Spec.Replicas = &replicas })).To(Succeed())
	e.awaitPodsOfNVIDIAs(int(replicas))
}

// otherOperator returns the condition about NVIDIA's operator; nil if there is none.
func (e *env) otherOperator() *metav1.Condition {
	e.t.Helper()
	return meta.FindStatusCondition(e.policy().Status.Conditions, v1.ConditionOtherOperatorRunning)
}

// reportsOther matches the condition about the Deployment of nvidiasOperator.
var reportsOther = And(
	HaveField("Status", metav1.ConditionTrue), HaveField("Reason", v1.ReasonOtherOperatorRunning),
	HaveField("Message", And(
		HavePrefix("Deployment gpu-operator in namespace nvidia runs NVIDIA's operator "+
			"(image nvcr.io/nvidia/gpu-operator:v26.3.1)"),
		ContainSubstring("kubectl -n nvidia scale deployment gpu-operator --replicas=0"), ContainSubstring("--take-over"),
	)),
)

// stackWrites returns the operator's writes since the mark, but for statuses of policies and Events.
func (e *env) stackWrites(mark cluster.Mark) string {
	e.t.Helper()
	var found cluster.Calls
	for _, call := range e.operatorCalls(mark).Writes() {
		if call.Resource != "events" && (call.Resource != "clusterpolicies" || call.Subresource != "status") {
			found = append(found, call)
		}
	}
	return found.String()
}

// TestNothingIsWrittenBesideNVIDIAsOperator: while a pod of NVIDIA's operator exists in any namespace, this one writes
// nothing but Events and a condition that names it and the remedy, and continues by itself once it is gone.
func TestNothingIsWrittenBesideNVIDIAsOperator(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	deployment := e.installNVIDIAs()
	address := freeAddress(t)
	e.run("--metrics-bind-address="+address, "--metrics-secure=false")
	metric := func(line string) {
		t.Helper()
		e.Eventually(func() (string, error) {
			found, err := scrape(http.DefaultClient, "http://"+address, "")
			return found.Body, err
		}).WithTimeout(noticeTime).Should(ContainSubstring("\n"+line+"\n"), line)
	}
	e.create(e.samplePolicy())
	e.Eventually(e.otherOperator).WithTimeout(noticeTime).Should(reportsOther)
	e.Expect(meta.FindStatusCondition(e.policy().Status.Conditions, v1.ConditionReady)).To(
		And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", v1.ReasonOtherOperatorRunning)))
	metric("gpu_operator_frozen 1")
	mark := e.mark()
	e.quietSince("NVIDIA's operator runs", mark, 5*time.Second)
	e.Expect(e.stackWrites(0)).To(BeEmpty())
	e.Expect(e.otherOperatorEvents()).To(HaveLen(1))

	e.scaleNVIDIAs(deployment, 0)
	e.awaitReady(2)
	e.Expect(e.otherOperator()).To(BeNil())
	metric("gpu_operator_frozen 0")
	e.settled()

	mark = e.mark()
	e.scaleNVIDIAs(deployment, 1)
	e.Eventually(e.otherOperator).WithTimeout(noticeTime).Should(reportsOther)
	e.Expect(meta.IsStatusConditionTrue(e.policy().Status.Conditions, v1.ConditionReady)).To(BeTrue(),
		"NVIDIA's operator sets Ready")
	admin := kubernetes.NewForConfigOrDie(e.cluster.Config)
	e.Expect(patchNode(t, admin, "gpu-00000", "labels", labels.GPUPresent, nil)).To(Succeed())
	e.change(`{"driver": {"version": "590.1.2"}}`)
	exporter := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nvidia-dcgm-exporter"}}
	e.Expect(e.client.Delete(t.Context(), exporter)).To(Succeed())
	e.Consistently(func() string { return e.stackWrites(mark) }).WithTimeout(5 * time.Second).WithPolling(time.Second).
		Should(BeEmpty())
	e.Expect(e.otherOperatorEvents()).To(HaveLen(2))

	e.Expect(e.client.Delete(t.Context(), deployment)).To(Succeed())
	e.Eventually(func() map[string]string { return e.node("gpu-00000").Labels }).WithTimeout(noticeTime).
		Should(HaveKeyWithValue(labels.GPUPresent, labels.True))
	e.Eventually(e.otherOperator).WithTimeout(noticeTime).Should(BeNil())
	e.Eventually(func() error {
		return e.client.Get(t.Context(), client.ObjectKeyFromObject(exporter), exporter)
	}).WithTimeout(noticeTime).Should(Succeed())
}

// TestTakeOverWorksBesideNVIDIAsOperator: with the flag the operator does not look for NVIDIA's.
func TestTakeOverWorksBesideNVIDIAsOperator(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.installNVIDIAs()
	e.run("--take-over")
	e.create(e.samplePolicy())
	e.awaitReady(1)
	e.Expect(e.otherOperator()).To(BeNil())
	e.Expect(e.otherOperatorEvents()).To(BeEmpty())
}

// TestWritesOfNVIDIAsOperatorAreNoticed: what NVIDIA's operator has left is taken over. If its annotation on a
// DaemonSet changes after that, it is at work although it has no pod, and nothing is written until it has been quiet
// for a time.
func TestWritesOfNVIDIAsOperatorAreNoticed(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	e.stop()
	plugin := &appsv1.DaemonSet{}
	plugin.Namespace, plugin.Name = namespace, "nvidia-device-plugin-daemonset"
	// NVIDIA's operator replaces the whole metadata with its own.
	overwrite := func(hash string) {
		t.Helper()
		e.Expect(e.edit(plugin, func() {
			plugin.Annotations = map[string]string{labels.NVIDIAHash: hash}
			plugin.Labels = map[string]string{
				"app": plugin.Name, "app.kubernetes.io/managed-by": "gpu-operator", "helm.sh/chart": "gpu-operator-v26.3.1",
			}
		})).To(Succeed())
	}
	overwrite("1")
	isApplied := func() (bool, error) {
		err := e.client.Get(t.Context(), client.ObjectKeyFromObject(plugin), plugin)
		return labels.IsApplied(plugin), err
	}
	e.run()
	e.Eventually(isApplied).WithTimeout(noticeTime).Should(BeTrue(), "the DaemonSet is taken over")
	e.Expect(plugin.Annotations).To(HaveKeyWithValue(labels.NVIDIAHash, "1"))
	e.awaitReady(1)
	e.Expect(e.otherOperatorEvents()).To(BeEmpty())
	// A pass that has begun would still apply what it has planned.
	e.settled()

	overwrite("2")
	e.Eventually(e.otherOperator).WithTimeout(noticeTime).Should(HaveField("Message", And(
		HavePrefix("DaemonSet nvidia-device-plugin-daemonset in namespace gpu-operator got another annotation"),
		ContainSubstring("Stop NVIDIA's operator"))))
	e.Expect(isApplied()).To(BeFalse())
	e.Eventually(isApplied).WithTimeout(noticeTime).Should(BeTrue(), "it has been quiet")
	e.Eventually(e.otherOperator).WithTimeout(noticeTime).Should(BeNil())
}

// otherOperatorEvents returns the messages of Events that NVIDIA's operator is at work.
func (e *env) otherOperatorEvents() []string {
	e.t.Helper()
	list, found := &corev1.EventList{}, []string{}
	e.Expect(e.client.List(e.t.Context(), list)).To(Succeed())
	for i := range list.Items {
		if event := &list.Items[i]; event.Reason == v1.ReasonOtherOperatorRunning {
			found = append(found, strings.Join([]string{event.Type, event.Message}, ": "))
		}
	}
	return found
}
