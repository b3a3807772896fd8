//go:build linux

package node_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

const (
	cleanupApp = "nvidia-gpu-cleanup"
	workName   = "work-with-handler"
)

// TestTheMachineIsAsBeforeTheStack runs the whole stack and deletes its policy: then files, sockets, mounts, processes,
// the configuration of the container runtime and the Node's labels and taints are those of before, although the toolkit
// ends without its signal to the container runtime. A pod of a user holds the node until the removal is forced. Then
// its container, which the toolkit's runtime has created, keeps the programs that it needs to be stopped.
func TestTheMachineIsAsBeforeTheStack(t *testing.T) {
	cluster.SkipInSample(t)
	b := newEnv(t)
	b.loadNVIDIA()
	b.load(played("example.com/work:1", "pause"))
	b.deployOperator(privileged)
	before := b.awaitSnapshot()
	begin := time.Now()
	b.createPolicy(samplePolicy())
	b.stages(begin)
	b.awaitReady()
	with := b.takeSnapshot(b)
	b.Expect(with.Handlers).To(ContainElement("nvidia"), "the snapshot shows the stack")
	b.Expect(with.Mounts).To(HaveKey("/run/nvidia/driver"))
	b.Expect(with.Files).To(And(HaveKey("/usr/local/nvidia/toolkit/nvidia-ctk"), HaveKey("/run/nvidia/validations"),
		HaveKey("/var/lib/kubelet/device-plugins/nvidia-gpu.sock"), HaveKey("/dev/char/195:0")))
	b.runWithHandler()
	b.Expect(b.machine.Order("toolkit-signal", &node.Order{Fault: "exit", Message: "the signal is lost"})).To(Succeed())

	begin = time.Now()
	b.Expect(b.client.CoreV1().RESTClient().Delete().AbsPath(policyPath, policyName).Do(t.Context()).Error()).To(Succeed())
	b.Eventually(func(g Gomega) {
		g.Expect(b.gpuReady(g)).To(And(HaveField("Reason", v1.ReasonRemovalHeld),
			HaveField("Message", ContainSubstring(workName))))
	}, "30s", "100ms").Should(Succeed(), b.describe)
	b.patchPolicy(map[string]any{"spec": map[string]any{"removal": map[string]any{"force": true}}})
	b.awaitCleanup(begin)
	b.checkHandlerKept()
	b.endWork()
	b.awaitRemoved(begin)
	// The processes of a container's runtime end a moment after it.
	b.Eventually(func() string { return cmp.Diff(before, b.takeSnapshot(b)) }, "30s", "500ms").Should(BeEmpty())
}

// runWithHandler runs a pod of a user with the toolkit's handler, and without a GPU.
func (b *env) runWithHandler() {
	b.t.Helper()
	pods := b.client.CoreV1().Pods(metav1.NamespaceDefault)
	_, err := pods.Create(b.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: workName},
		Spec: corev1.PodSpec{
			RuntimeClassName: new("nvidia"),
			Containers:       []corev1.Container{{Name: "work", Image: "example.com/work:1"}},
		},
	}, metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	b.Eventually(func(g Gomega) {
		pod, err := pods.Get(b.t.Context(), workName, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning), "%+v", pod.Status)
	}, "30s", "50ms").Should(Succeed())
}

// endWork deletes that pod, and returns once the kubelet has stopped its containers.
func (b *env) endWork() {
	b.t.Helper()
	pods := b.client.CoreV1().Pods(metav1.NamespaceDefault)
	b.Expect(pods.Delete(b.t.Context(), workName, metav1.DeleteOptions{})).To(Succeed())
	b.Eventually(func(g Gomega) {
		_, err := pods.Get(b.t.Context(), workName, metav1.GetOptions{})
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
	}, "1m", "100ms").Should(Succeed())
}

// cleanupPods are the pods that clean up.
func (b *env) cleanupPods(g Gomega) []corev1.Pod {
	found, err := b.client.CoreV1().Pods(namespace).
		List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + cleanupApp})
	g.Expect(err).NotTo(HaveOccurred())
	return found.Items
}

// awaitCleanup waits until the clean-up works, which is when no other pod of the stack is on the machine.
func (b *env) awaitCleanup(begin time.Time) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		found := b.cleanupPods(g)
		g.Expect(found).To(HaveLen(1))
		g.Expect(found[0].Status.InitContainerStatuses).To(HaveEach(HaveField("State.Running", Not(BeNil()))))
	}, "2m", "50ms").Should(Succeed(), b.describe)
	b.t.Logf("the clean-up began after %s", since(begin))
	for _, pod := range b.pods() {
		b.Expect(pod.Labels["app"]).To(BeElementOf(cleanupApp, account))
	}
}

// checkHandlerKept waits until the clean-up waits for the container of the user, and checks that it has left what stops
// that container.
func (b *env) checkHandlerKept() {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		log, err := b.client.CoreV1().Pods(namespace).GetLogs(b.cleanupPods(g)[0].Name,
			&corev1.PodLogOptions{Container: "gpu-node-cleanup"}).DoRaw(b.t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(log)).To(MatchRegexp(`msg=waiting .*container [0-9a-f]{64} was created with it`))
	}, "30s", "200ms").Should(Succeed(), b.describe)
	b.Expect(b.machine.Running("/usr/local/nvidia/toolkit/nvidia-container-runtime")).To(BeAnExistingFile())
	b.Expect(b.machine.Running("/run/nvidia/validations")).NotTo(BeADirectory())
}

// awaitRemoved waits until the policy and all pods of the stack are gone.
func (b *env) awaitRemoved(begin time.Time) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		_, err := b.policy()
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		g.Expect(b.pods()).To(HaveEach(HaveField("Labels", HaveKeyWithValue("app", account))))
	}, "2m", "100ms").Should(Succeed(), b.describe)
	b.t.Logf("the policy was gone after %s", since(begin))
}
