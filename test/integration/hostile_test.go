package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	webhooksv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// hangTime is how long a call hangs. What users need to know must be in the status before that, in reportedWithin.
const hangTime, reportedWithin = 30 * time.Second, 25 * time.Second

// repairedWithin is how soon an object must match the spec once nothing prevents it.
const repairedWithin = 30 * time.Second

// webhook is an admission webhook on DaemonSets.
type webhook struct {
	*httptest.Server
	client kubernetes.Interface
}

// newWebhook starts a webhook that responds with the JSON patch that the function returns for the review.
func newWebhook(e *env, answer func(*http.Request, *admissionv1.AdmissionReview) []byte) *webhook {
	e.t.Helper()
	handler := func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if patch := answer(r, review); patch != nil {
			review.Response.Patch, review.Response.PatchType = patch, new(admissionv1.PatchTypeJSONPatch)
		}
		_ = json.NewEncoder(w).Encode(review) //nolint:errchkjson // The API server reports a response that it cannot decode.
	}
	w := &webhook{
		Server: httptest.NewTLSServer(http.HandlerFunc(handler)), client: kubernetes.NewForConfigOrDie(e.cluster.Config),
	}
	e.t.Cleanup(w.Close)
	return w
}

// install registers the webhook for all DaemonSets, and waits until the API server calls it.
func (w *webhook) install(e *env, asked func() int64) {
	e.t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})
	configuration := &webhooksv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hostile"},
		Webhooks: []webhooksv1.MutatingWebhook{{
			Name: "hostile.example.com", AdmissionReviewVersions: []string{"v1"},
			ClientConfig: webhooksv1.WebhookClientConfig{URL: &w.URL, CABundle: ca},
			Rules: []webhooksv1.RuleWithOperations{{
				Operations: []webhooksv1.OperationType{webhooksv1.Create, webhooksv1.Update},
				Rule: webhooksv1.Rule{
					APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"daemonsets"},
				},
			}},
			FailurePolicy: new(webhooksv1.Fail), SideEffects: new(webhooksv1.SideEffectClassNone),
			TimeoutSeconds: new(int32(hangTime / time.Second)),
			// Writes by users are not delayed, so that the test can continue.
			MatchConditions: []webhooksv1.MatchCondition{{
				Name: "operator", Expression: fmt.Sprintf("request.userInfo.username in ['%s', 'system:admin-probe']",
					operatorUser),
			}},
		}},
	}
	_, err := w.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(e.t.Context(), configuration,
		metav1.CreateOptions{})
	e.Expect(err).NotTo(HaveOccurred())
	probe := *e.cluster.Config
	probe.Impersonate.UserName, probe.Impersonate.Groups = "system:admin-probe", []string{"system:masters"}
	prober := kubernetes.NewForConfigOrDie(&probe)
	e.Eventually(func() int64 {
		// Ignore the result: the webhook may not respond.
		ctx, cancel := context.WithTimeout(e.t.Context(), time.Second)
		defer cancel()
		_, _ = prober.AppsV1().DaemonSets(namespace).Create(ctx, probeDaemonSet(),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return asked()
	}).WithTimeout(eventually).WithPolling(100 * time.Millisecond).Should(BeNumerically(">", 0))
}

// uninstall removes the webhook.
func (w *webhook) uninstall(e *env) {
	e.t.Helper()
	e.Expect(w.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(e.t.Context(), "hostile",
		metav1.DeleteOptions{})).To(Succeed())
}

func probeDaemonSet() *appsv1.DaemonSet {
	labels := map[string]string{"probe": "webhook"}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: namespace}, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "c", Image: "example.com/probe"}},
				},
			},
		}}
}

// editPlugin changes the device plugin in the spec, and so its DaemonSet.
func (e *env) editPlugin(value string) {
	e.t.Helper()
	e.Eventually(func() error {
		object := e.policy()
		object.Spec.DevicePlugin = &v1.DevicePluginSpec{
			ContainerSpec: v1.ContainerSpec{Env: []v1.EnvVar{{Name: "EXAMPLE", Value: value}}},
		}
		return e.client.Update(e.t.Context(), object)
	}).Should(Succeed())
}

// TestAWebhookThatHangs: each write of a DaemonSet by the operator hangs for 30 s. The status reports that, and
// changes on nodes meanwhile.
func TestAWebhookThatHangs(t *testing.T) {
	cluster.SkipInSample(t)
	e := newEnv(t, envOptions{nodes: 3, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(3)
	asked, release := make(chan struct{}, 1000), make(chan struct{})
	hook := newWebhook(e, func(r *http.Request, _ *admissionv1.AdmissionReview) []byte {
		asked <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-release:
		}
		return nil
	})
	hook.install(e, func() int64 { return int64(len(asked)) })

	e.editPlugin("1")
	begin := time.Now()
	e.Eventually(e.policy).WithTimeout(reportedWithin).WithPolling(50*time.Millisecond).Should(
		HaveField("Status.Operands",
			ContainElement(And(HaveField("Name", "device-plugin"), HaveField("State", v1.OperandError),
				HaveField("Message", ContainSubstring("no answer"))))), "the call that hangs")
	t.Logf("the call that hangs is reported after %s", time.Since(begin).Round(time.Millisecond))

	e.sim.Break("driver", "gpu-00001", simulator.CrashLoop)
	e.deletePod("nvidia-driver-daemonset", "gpu-00001")
	e.Eventually(func() bool {
		pod := e.podOn("nvidia-driver-daemonset", "gpu-00001")
		return pod != nil && len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].RestartCount > 0
	}).WithTimeout(eventually).WithPolling(20 * time.Millisecond).Should(BeTrue())
	begin = time.Now()
	e.Eventually(e.policy).WithTimeout(reportedWithin).WithPolling(50 * time.Millisecond).Should(And(
		HaveField("Status.State", v1.StateNotReady), HaveField("Status.NodeSummary.Degraded", int32(1))))
	t.Logf("a driver that fails meanwhile is reported after %s", time.Since(begin).Round(time.Millisecond))

	close(release)
	hook.uninstall(e)
	e.Eventually(func() []corev1.EnvVar { return e.daemonSet(pluginName).Spec.Template.Spec.Containers[0].Env }).
		WithTimeout(repairedWithin).WithPolling(100*time.Millisecond).Should(ContainElement(HaveField("Name", "EXAMPLE")),
		"applied without another event")
	e.Eventually(e.policy).WithTimeout(repairedWithin).WithPolling(100*time.Millisecond).Should(
		HaveField("Status.Operands", Not(ContainElement(HaveField("State", v1.OperandError)))), "and no longer reported")
}

// TestAWebhookThatChangesObjectsBack: every written DaemonSet is stored with another image.
func TestAWebhookThatChangesObjectsBack(t *testing.T) {
	cluster.SkipInSample(t)
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	asked := make(chan struct{}, 1000)
	hook := newWebhook(e, func(_ *http.Request, review *admissionv1.AdmissionReview) []byte {
		asked <- struct{}{}
		if !bytes.Contains(review.Request.Object.Raw, []byte(pluginName)) {
			return nil
		}
		return []byte(`[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "example.com/other:1"}]`)
	})
	hook.install(e, func() int64 { return int64(len(asked)) })

	e.editPlugin("2")
	begin := time.Now()
	e.Eventually(e.policy).WithTimeout(reportedWithin).WithPolling(50*time.Millisecond).Should(And(
		HaveField("Status.State", v1.StateNotReady),
		HaveField("Status.Operands",
			ContainElement(And(HaveField("Name", "device-plugin"), HaveField("Reason", v1.ReasonAltered),
				HaveField("Message", And(ContainSubstring(pluginName), ContainSubstring("image"))))))), "the mutated object")
	t.Logf("the mutated object is reported after %s", time.Since(begin).Round(time.Millisecond))

	const events, lasting = 40, 8 * time.Second
	mark := e.mark()
	for i := range events {
		ds := e.daemonSet(driverName)
		e.Expect(e.edit(ds, func() { ds.Labels["team"] = fmt.Sprint(i) })).To(Succeed())
		time.Sleep(lasting / events) // The duration of the events; this is not a wait for a condition.
	}
	tries := len(e.operatorCalls(mark).Writes().Of("daemonsets"))
	t.Logf("%d writes of DaemonSets in %s with %d events", tries, lasting, events)
	e.Expect(tries).To(BeNumerically("<=", retriesWithin(time.Since(begin))), "only the backoff causes retries")

	hook.uninstall(e)
	begin = time.Now()
	e.Eventually(func() string { return e.daemonSet(pluginName).Spec.Template.Spec.Containers[0].Image }).
		WithTimeout(repairedWithin).WithPolling(100*time.Millisecond).ShouldNot(Equal("example.com/other:1"),
		"repaired without another event")
	t.Logf("repaired %s after the cause was removed", time.Since(begin).Round(time.Millisecond))
	e.awaitReady(2)
}

// retriesWithin returns how often a failed write is repeated in a time, after 1, 2 and then each 3 s, the back-off of
// test/operator. A busy machine needs longer for the same events.
func retriesWithin(d time.Duration) int {
	retries := 1 // One may be in flight when the count begins.
	for delay, at := time.Second, time.Second; at <= d; at += delay {
		retries++
		delay = min(2*delay, 3*time.Second)
	}
	return retries
}

// TestAllocatableFallsToNothing: the kubelet reports no allocatable GPUs on a node, while every pod of the stack
// works.
func TestAllocatableFallsToNothing(t *testing.T) {
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	node := e.node("gpu-00001")
	node.Status.Allocatable["nvidia.com/gpu"] = *node.Status.Allocatable.Cpu()
	zero := node.Status.Allocatable["nvidia.com/gpu"]
	zero.Set(0)
	node.Status.Allocatable["nvidia.com/gpu"] = zero
	e.Expect(e.client.Status().Update(t.Context(), node)).To(Succeed())
	begin := time.Now()
	e.Eventually(func() corev1.ConditionStatus { return nodeCondition(e.node("gpu-00001")).Status }).
		WithPolling(10 * time.Millisecond).Should(Equal(corev1.ConditionFalse))
	t.Logf("the condition is False after %s", time.Since(begin).Round(time.Millisecond))
	e.Eventually(e.policy).WithTimeout(reportedWithin).WithPolling(50 * time.Millisecond).Should(And(
		HaveField("Status.State", v1.StateNotReady), HaveField("Status.NodeSummary.ReadyOfTotal", "1/2")))
}
