//go:build linux

package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/manifest"
)

const (
	cleanupName = "nvidia-gpu-cleanup"
	workName    = "work-with-handler"
)

// TestTheMachineIsAsBeforeTheStack runs the whole stack, deletes it, and cleans up: files, sockets, mounts, processes
// and the configuration of the container runtime are those of before. A container that the toolkit's runtime has
// created keeps the programs that it needs to be stopped.
func TestTheMachineIsAsBeforeTheStack(t *testing.T) {
	b := newEnv(t)
	b.loadNVIDIA()
	b.deployOperator(privileged)
	var before snapshot
	b.Eventually(func(g Gomega) {
		before = b.takeSnapshot(g)
		g.Expect(before.Processes).To(HaveKeyWithValue("gpu-operator", 2))
		g.Expect(before.Handlers).NotTo(BeEmpty())
	}, "30s", "500ms").Should(Succeed())
	begin := time.Now()
	b.createPolicy(samplePolicy())
	b.stages(begin, 3*time.Minute)
	b.awaitReady()
	with := b.takeSnapshot(b)
	b.Expect(with.Handlers).To(ContainElement("nvidia"), "the snapshot shows the stack")
	b.Expect(with.Mounts).To(HaveKey("/run/nvidia/driver"))
	b.Expect(with.Files).To(And(HaveKey("/usr/local/nvidia/toolkit/nvidia-ctk"), HaveKey("/run/nvidia/validations"),
		HaveKey("/var/lib/kubelet/device-plugins/nvidia-gpu.sock"), HaveKey("/dev/char/195:0")))

	b.runWithHandler()
	begin = time.Now()
	b.deleteStack()
	t.Logf("the stack was gone after %s; it has left %s", since(begin), b.difference(before))
	b.Expect(b.difference(before)).NotTo(BeEmpty(), "there is something to clean up")
	b.checkCleanup(MatchRegexp(`^/usr/local/nvidia/toolkit/nvidia-cdi-hook and 3 more, made by the container toolkit: ` +
		`container [0-9a-f]{64} was created with it\n?$`))
	b.endWork()
	begin = time.Now()
	b.checkCleanup(Or(BeEmpty(), HavePrefix("kernel modules")))
	t.Logf("the machine was clean after %s", since(begin))
	// The processes of a container's runtime end a moment after it.
	b.Eventually(func() string { return b.difference(before) }, "30s", "500ms").Should(BeEmpty())
}

// difference returns how the machine differs from a snapshot.
func (b *env) difference(before snapshot) string { return cmp.Diff(before, b.takeSnapshot(b)) }

// deleteStack deletes the policy, and returns once none of its pods is on the machine.
func (b *env) deleteStack() {
	b.t.Helper()
	b.Expect(b.client.CoreV1().RESTClient().Delete().AbsPath(policyPath, policyName).Do(b.t.Context()).Error()).
		To(Succeed())
	b.Eventually(func(g Gomega) {
		pods, err := b.client.CoreV1().Pods(namespace).List(b.t.Context(), metav1.ListOptions{LabelSelector: labels.Operand})
		g.Expect(err).NotTo(HaveOccurred())
		names := make([]string, 0, len(pods.Items))
		for i := range pods.Items {
			names = append(names, pods.Items[i].Name)
		}
		g.Expect(names).To(BeEmpty())
	}, "2m", "100ms").Should(Succeed(), b.describe)
}

// runWithHandler runs a pod of a user with the toolkit's handler.
func (b *env) runWithHandler() {
	b.t.Helper()
	b.load(played("example.com/work:1", "pause"))
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

// checkCleanup runs the DaemonSet that cleans up until its pod is ready, checks what it reports, and deletes it.
func (b *env) checkCleanup(reported OmegaMatcher) {
	b.t.Helper()
	sets := b.client.AppsV1().DaemonSets(namespace)
	_, err := sets.Create(b.t.Context(), b.cleanupDaemonSet(), metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	pods := func(g Gomega) []corev1.Pod {
		found, err := b.client.CoreV1().Pods(namespace).
			List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + cleanupName})
		g.Expect(err).NotTo(HaveOccurred())
		return found.Items
	}
	var pod corev1.Pod
	b.Eventually(func(g Gomega) {
		found := pods(g)
		g.Expect(found).To(HaveLen(1))
		pod = found[0]
		g.Expect(pod.Status.Conditions).To(ContainElement(And(
			HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))), "%+v", pod.Status)
	}, "2m", "100ms").Should(Succeed(), b.describe)
	for _, status := range pod.Status.InitContainerStatuses {
		b.Expect(status.RestartCount).To(BeZero())
		b.Expect(status.State.Terminated).NotTo(BeNil())
		b.t.Logf("%s says %q", status.Name, status.State.Terminated.Message)
		b.Expect(status.State.Terminated.Message).To(reported)
	}
	b.Expect(sets.Delete(b.t.Context(), cleanupName, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationForeground)})).To(Succeed())
	b.Eventually(func(g Gomega) {
		_, err := sets.Get(b.t.Context(), cleanupName, metav1.GetOptions{})
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
		g.Expect(pods(g)).To(BeEmpty())
	}, "1m", "100ms").Should(Succeed())
}

// cleanupDaemonSet is the asset with the defaults of the spec, on the machine.
func (b *env) cleanupDaemonSet() *appsv1.DaemonSet {
	b.t.Helper()
	spec := effective.Of(samplePolicy().Spec)
	objects, err := manifest.DecodeFolder("node-cleanup", map[string]any{
		"Helper": map[string]string{"Image": operatorImage + ":" + operatorTag, "PullPolicy": "IfNotPresent"},
		"Paths":  spec.Paths(),
		"Values": map[string]any{"MPSRoot": spec.DevicePlugin.MPS.Root, "RuntimeFiles": []string{}},
	})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(objects).To(HaveLen(1))
	set, isSet := objects[0].(*appsv1.DaemonSet)
	b.Expect(isSet).To(BeTrue(), fmt.Sprintf("%T", objects[0]))
	set.Namespace = namespace
	cleanup := &set.Spec.Template.Spec.InitContainers[0]
	cleanup.Args = append(cleanup.Args, "--patience=1s")
	set.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: machineName}
	return set
}
