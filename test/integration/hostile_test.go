package integration

import (
	"bytes"
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
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// reportedWithin is how soon the status must report what concerns users, whatever hangs.
const reportedWithin = 5 * time.Second

// repairedWithin is how soon an object must be as the spec asks once nothing keeps it from that any more.
const repairedWithin = 30 * time.Second

// webhook is an admission webhook on DaemonSets.
type webhook struct {
	*httptest.Server
	client kubernetes.Interface
}

// newWebhook starts a webhook that answers by this function, which is given the review and returns a JSON patch.
func newWebhook(b *bed, answer func(*http.Request, *admissionv1.AdmissionReview) []byte) *webhook {
	b.t.Helper()
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
		_ = json.NewEncoder(w).Encode(review) //nolint:errchkjson // The API server reports an answer that it cannot read.
	}
	w := &webhook{Server: httptest.NewTLSServer(http.HandlerFunc(handler)), client: kubernetes.NewForConfigOrDie(b.cluster.Config)}
	b.t.Cleanup(w.Close)
	return w
}

// install has the API server ask the webhook about all DaemonSets, and waits until it does.
func (w *webhook) install(b *bed, asked func() int64) {
	b.t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})
	configuration := &webhooksv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hostile"},
		Webhooks: []webhooksv1.MutatingWebhook{{
			Name: "hostile.example.com", AdmissionReviewVersions: []string{"v1"},
			ClientConfig: webhooksv1.WebhookClientConfig{URL: &w.URL, CABundle: ca},
			Rules: []webhooksv1.RuleWithOperations{{
				Operations: []webhooksv1.OperationType{webhooksv1.Create, webhooksv1.Update},
				Rule:       webhooksv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"daemonsets"}},
			}},
			FailurePolicy: new(webhooksv1.Fail), SideEffects: new(webhooksv1.SideEffectClassNone), TimeoutSeconds: new(int32(10)),
			// What users write is not delayed, so that the story can go on.
			MatchConditions: []webhooksv1.MatchCondition{{
				Name: "operator", Expression: fmt.Sprintf("request.userInfo.username in ['%s', 'system:admin-probe']", operatorUser),
			}},
		}},
	}
	_, err := w.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(b.t.Context(), configuration, metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	probe := *b.cluster.Config
	probe.Impersonate.UserName, probe.Impersonate.Groups = "system:admin-probe", []string{"system:masters"}
	prober := kubernetes.NewForConfigOrDie(&probe)
	b.Eventually(func() int64 {
		// Whether the call succeeds says nothing: the webhook may not answer it.
		_, _ = prober.AppsV1().DaemonSets(namespace).Create(b.t.Context(), probeDaemonSet(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return asked()
	}).WithTimeout(20 * time.Second).WithPolling(100 * time.Millisecond).Should(BeNumerically(">", 0))
}

// uninstall ends the webhook's part.
func (w *webhook) uninstall(b *bed) {
	b.t.Helper()
	b.Expect(w.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(b.t.Context(), "hostile", metav1.DeleteOptions{})).To(Succeed())
}

func probeDaemonSet() *appsv1.DaemonSet {
	labels := map[string]string{"probe": "webhook"}
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: namespace}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/probe"}}},
		},
	}}
}

// editPlugin changes what the spec says of the device plugin, and so its DaemonSet.
func (b *bed) editPlugin(value string) {
	b.t.Helper()
	b.Eventually(func() error {
		object := b.policy()
		object.Spec.DevicePlugin = &v1.DevicePluginSpec{ContainerSpec: v1.ContainerSpec{Env: []v1.EnvVar{{Name: "EXAMPLE", Value: value}}}}
		return b.client.Update(b.t.Context(), object)
	}).Should(Succeed())
}

// TestAWebhookThatHangs: the operator's writes of DaemonSets get no answer for 10 s, each. The status reports that, and
// what happens on nodes meanwhile.
func TestAWebhookThatHangs(t *testing.T) {
	b := newBed(t, bedOptions{nodes: 3, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(3)
	asked, release := make(chan struct{}, 1000), make(chan struct{})
	hook := newWebhook(b, func(r *http.Request, _ *admissionv1.AdmissionReview) []byte {
		asked <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-release:
		}
		return nil
	})
	hook.install(b, func() int64 { return int64(len(asked)) })

	b.editPlugin("1")
	begin := time.Now()
	b.Eventually(b.policy).WithTimeout(reportedWithin).WithPolling(50*time.Millisecond).Should(
		HaveField("Status.Operands", ContainElement(And(HaveField("Name", "device-plugin"), HaveField("State", v1.OperandError),
			HaveField("Message", ContainSubstring("no answer"))))), "the call that hangs")
	t.Logf("the call that hangs is reported after %s", time.Since(begin).Round(time.Millisecond))

	b.sim.Break("driver", "gpu-00001", simulator.CrashLoop)
	b.deletePod("nvidia-driver-daemonset", "gpu-00001")
	b.Eventually(func() bool {
		pod := b.podOn("nvidia-driver-daemonset", "gpu-00001")
		return pod != nil && len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].RestartCount > 0
	}).WithTimeout(20 * time.Second).WithPolling(20 * time.Millisecond).Should(BeTrue())
	begin = time.Now()
	b.Eventually(b.policy).WithTimeout(reportedWithin).WithPolling(50 * time.Millisecond).Should(And(
		HaveField("Status.State", v1.StateNotReady), HaveField("Status.NodeSummary.Degraded", int32(1))))
	t.Logf("a driver that fails meanwhile is reported after %s", time.Since(begin).Round(time.Millisecond))

	close(release)
	hook.uninstall(b)
	b.Eventually(func() []corev1.EnvVar { return b.daemonSet(pluginName).Spec.Template.Spec.Containers[0].Env }).
		WithTimeout(repairedWithin).WithPolling(100*time.Millisecond).Should(ContainElement(HaveField("Name", "EXAMPLE")), "applied without another event")
	b.Eventually(b.policy).WithTimeout(repairedWithin).WithPolling(100*time.Millisecond).Should(
		HaveField("Status.Operands", Not(ContainElement(HaveField("State", v1.OperandError)))), "and no longer reported")
}

// TestAWebhookThatChangesObjectsBack: every write of a DaemonSet comes back with another image.
func TestAWebhookThatChangesObjectsBack(t *testing.T) {
	b := newBed(t, bedOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(2)
	asked := make(chan struct{}, 1000)
	hook := newWebhook(b, func(_ *http.Request, review *admissionv1.AdmissionReview) []byte {
		asked <- struct{}{}
		if !bytes.Contains(review.Request.Object.Raw, []byte(pluginName)) {
			return nil
		}
		return []byte(`[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "example.com/other:1"}]`)
	})
	hook.install(b, func() int64 { return int64(len(asked)) })

	b.editPlugin("2")
	begin := time.Now()
	b.Eventually(b.policy).WithTimeout(reportedWithin).WithPolling(50*time.Millisecond).Should(And(
		HaveField("Status.State", v1.StateNotReady),
		HaveField("Status.Operands", ContainElement(And(HaveField("Name", "device-plugin"), HaveField("Reason", v1.ReasonAltered),
			HaveField("Message", And(ContainSubstring(pluginName), ContainSubstring("image"))))))), "what came back otherwise")
	t.Logf("what came back otherwise is reported after %s", time.Since(begin).Round(time.Millisecond))

	const events, lasting = 40, 8 * time.Second
	mark := b.mark()
	for i := range events {
		ds := b.daemonSet(driverName)
		ds.Labels["team"] = fmt.Sprint(i)
		b.Expect(b.client.Update(t.Context(), ds)).To(Succeed())
		time.Sleep(lasting / events) // The time in which the events come; nothing is waited for.
	}
	tries := len(b.operatorCalls(mark).Writes().Of("daemonsets"))
	t.Logf("%d writes of DaemonSets in %s with %d events", tries, lasting, events)
	b.Expect(tries).To(BeNumerically("<=", 4), "tries are made by the back-off alone: 1, 2, 4, 8 and 15 s")

	hook.uninstall(b)
	begin = time.Now()
	b.Eventually(func() string { return b.daemonSet(pluginName).Spec.Template.Spec.Containers[0].Image }).
		WithTimeout(repairedWithin).WithPolling(100*time.Millisecond).ShouldNot(Equal("example.com/other:1"), "repaired without another event")
	t.Logf("repaired %s after the cause was gone", time.Since(begin).Round(time.Millisecond))
	b.awaitReady(2)
}

// TestAllocatableFallsToNothing: the kubelet takes all GPUs of a node from pods, while every pod of the stack works.
func TestAllocatableFallsToNothing(t *testing.T) {
	b := newBed(t, bedOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(2)
	node := b.node("gpu-00001")
	node.Status.Allocatable["nvidia.com/gpu"] = *node.Status.Allocatable.Cpu()
	zero := node.Status.Allocatable["nvidia.com/gpu"]
	zero.Set(0)
	node.Status.Allocatable["nvidia.com/gpu"] = zero
	b.Expect(b.client.Status().Update(t.Context(), node)).To(Succeed())
	begin := time.Now()
	b.Eventually(func() corev1.ConditionStatus { return nodeCondition(b.node("gpu-00001")).Status }).
		WithTimeout(time.Second).WithPolling(10 * time.Millisecond).Should(Equal(corev1.ConditionFalse))
	t.Logf("the condition is False after %s", time.Since(begin).Round(time.Millisecond))
	b.Eventually(b.policy).WithTimeout(reportedWithin).WithPolling(50 * time.Millisecond).Should(And(
		HaveField("Status.State", v1.StateNotReady), HaveField("Status.NodeSummary.ReadyOfTotal", "1/2")))
}
