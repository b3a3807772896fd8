//go:build linux

package node_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

const (
	daemonApp     = "nvidia-device-plugin-mps-control-daemon"
	daemonProgram = "mps-control-daemon"
	daemonPath    = "/usr/bin/" + daemonProgram
	clientImage   = "example.com/mps-client:1"
	// mpsShares is how many pods share a GPU, clientLimits what each gets of its 81,559 MiB and its threads.
	mpsShares    = 4
	clientLimits = "memory 20389M, threads 25.0 %\n"
	// mpsWithin has room for the plugin, which tries once in 30 s whether the daemon serves.
	mpsWithin = 3 * time.Minute
)

// checkMPS shares the GPUs by the Multi-Process Service: plugin and daemon come up in either order, pods get their part
// of memory and threads, and node and pods work again after a restart of the plugin and of the daemon. What does not
// read the configuration is not affected.
func (b *env) checkMPS() {
	b.load(played(clientImage, "mps-client"))
	before := b.containers(configured...)
	reported := b.follow(readiness)
	begin := time.Now()
	b.share("shared by MPS", map[string]any{"mps": map[string]any{"replicas": mpsShares}}, mpsShares, mpsWithin)
	b.t.Logf("meanwhile the node reported %q", reported()[gpuReady])
	b.checkDaemonOrder(begin)
	b.Expect(b.computeMode()).To(Equal("EXCLUSIVE_PROCESS"))
	begin = time.Now()
	b.createClient("client", 1)
	b.awaitClient("client", 0)
	b.t.Logf("a client had its limits after %s", since(begin))
	b.createClient("greedy", 2)
	b.Eventually(func(g Gomega) {
		g.Expect(b.clientPod(g, "greedy").Status).To(And(HaveField("Phase", corev1.PodFailed),
			HaveField("Reason", "UnexpectedAdmissionError"), HaveField("Message", ContainSubstring("maximum request size"))))
	}, "1m", "100ms").Should(Succeed())
	b.restartPlugin()
	b.killDaemon(b.process("/stand-in", daemonPath), "client", "later")
	b.endClients()
	b.createClient("client", 1)
	b.awaitClient("client", 0)
	b.restartDaemon()
	b.Expect(b.containers(configured...)).To(Equal(before), "no other container is restarted")
	b.endClients()
	b.share("shared no more", nil, 1, mpsWithin)
	b.Expect(b.containers(configured...)).To(Equal(before), "no other container is restarted")
	b.awaitWithoutMPS()
}

// awaitWithoutMPS waits until the daemon is gone and has left the GPUs as they were.
func (b *env) awaitWithoutMPS() {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		g.Expect(b.podsOf(namespace, daemonApp)).To(BeEmpty())
		g.Expect(b.computeMode()).To(Equal("DEFAULT"))
	}, "1m", "100ms").Should(Succeed(), b.describe)
}

// readiness returns the node's condition about its GPUs.
func readiness(node *corev1.Node) map[string]string {
	for _, condition := range node.Status.Conditions {
		if condition.Type == gpuReady {
			return map[string]string{gpuReady: condition.Reason + ": " + condition.Message}
		}
	}
	return nil
}

// checkDaemonOrder checks the order of plugin, mount and daemon, and prints it.
func (b *env) checkDaemonOrder(begin time.Time) {
	b.t.Helper()
	starts, err := b.machine.Starts(begin)
	b.Expect(err).NotTo(HaveOccurred())
	at := map[string]time.Duration{}
	for _, start := range starts {
		if _, seen := at[start.Container]; !seen {
			at[start.Container] = start.At.Sub(begin).Round(time.Millisecond)
		}
	}
	b.Expect(at).To(And(HaveKey("mps-control-daemon-mounts"), HaveKey("mps-control-daemon-ctr"),
		HaveKey(devicePlugin.container)))
	b.Expect(at["mps-control-daemon-ctr"]).To(BeNumerically(">", at["mps-control-daemon-mounts"]))
	mounts, err := os.ReadFile(b.machine.Running("/proc/1/mounts"))
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(strings.Count(string(mounts), " /run/nvidia/mps/shm tmpfs ")).To(Equal(1),
		"the memory is mounted on the host, once: %s", mounts)
	b.t.Logf("plugin started after %s, the memory was mounted after %s, the daemon started after %s",
		at[devicePlugin.container], at["mps-control-daemon-mounts"], at["mps-control-daemon-ctr"])
}

// restartPlugin restarts the plugin: the client goes on, and a later one works.
func (b *env) restartPlugin() {
	b.t.Helper()
	begin := time.Now()
	b.replace(devicePlugin.app)
	b.awaitWork(devicePlugin)
	b.awaitDevices(map[corev1.ResourceName]int{gpuResource: gpus * mpsShares})
	b.awaitReady()
	b.t.Logf("after a restart of the plugin all was ready after %s", since(begin))
	b.createClient("later", 1)
	b.awaitClient("later", 0)
	b.awaitClient("client", 0)
}

// killDaemon kills the daemon, so that the kubelet restarts its container alone: what it has left does not keep the
// next one from serving, and the clients are restarted and work.
func (b *env) killDaemon(pid int, clients ...string) {
	b.t.Helper()
	begin := time.Now()
	b.Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
	for _, client := range clients {
		b.awaitClient(client, 1)
	}
	b.t.Logf("after the daemon was killed, the clients worked again after %s", since(begin))
}

// restartDaemon restarts the daemon, which comes up late: its clients fail and are restarted, and work with the new
// daemon. Meanwhile the operator reports the daemon alone, as the GPUs stay allocatable.
func (b *env) restartDaemon() {
	b.t.Helper()
	b.Expect(b.machine.Order(daemonProgram, &node.Order{Fault: "hang"})).To(Succeed())
	b.t.Cleanup(func() { b.Expect(b.machine.Order(daemonProgram, nil)).To(Succeed()) })
	begin := time.Now()
	b.replace(daemonApp)
	b.Eventually(func(g Gomega) {
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		condition := meta.FindStatusCondition(policy.Status.Conditions, v1.ConditionAuxiliaryReady)
		g.Expect(condition).To(HaveField("Status", metav1.ConditionFalse))
		message := operandMessage(policy, daemonProgram)
		g.Expect(message).To(And(ContainSubstring("mps-control-daemon-mounts"), ContainSubstring(machineName)))
		g.Expect(policy.Status.State).To(Equal(v1.StateReady), "%+v", policy.Status)
		g.Expect(b.gpuReady(g).Status).To(Equal(corev1.ConditionTrue))
		g.Expect(b.clientPod(g, "client").Status.ContainerStatuses).To(HaveEach(HaveField("Ready", false)))
		b.t.Logf("without the daemon after %s: %s", since(begin), message)
	}, "1m", "200ms").Should(Succeed(), b.describe)
	repaired := time.Now()
	b.Expect(b.machine.Order(daemonProgram, nil)).To(Succeed())
	b.awaitClient("client", 1)
	b.t.Logf("the client worked again %s after the repair", since(repaired))
	b.Eventually(func(g Gomega) {
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(meta.IsStatusConditionTrue(policy.Status.Conditions, v1.ConditionAuxiliaryReady)).To(BeTrue())
		g.Expect(policy.Status.State).To(Equal(v1.StateReady))
	}, "1m", "100ms").Should(Succeed(), b.describe)
	b.t.Logf("the operator reported all ready %s after the repair", since(repaired))
}

// replace deletes the pod of an app, and returns once it is gone, and not when its containers have ended: what asks
// for the app's pod after that gets the next one.
func (b *env) replace(app string) {
	b.t.Helper()
	old := b.podsOf(namespace, app)
	b.Expect(old).To(HaveLen(1))
	pods, ofApp := b.client.CoreV1().Pods(namespace), metav1.ListOptions{LabelSelector: "app=" + app}
	b.Expect(pods.DeleteCollection(b.t.Context(), metav1.DeleteOptions{}, ofApp)).To(Succeed())
	b.Eventually(func(g Gomega) {
		left, err := pods.List(b.t.Context(), ofApp)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(left.Items).NotTo(ContainElement(HaveField("UID", old[0])))
	}, "1m", "50ms").Should(Succeed(), b.describe)
}

// createClient creates the pod of a user that uses GPUs through MPS.
func (b *env) createClient(name string, shares int64) {
	b.t.Helper()
	_, err := b.client.CoreV1().Pods(metav1.NamespaceDefault).Create(b.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "work", Image: clientImage,
			Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{gpuResource: *resource.NewQuantity(shares, resource.DecimalSI)},
			},
		}}},
	}, metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
}

// endClients deletes all pods of users, and returns once they are gone.
func (b *env) endClients() {
	b.t.Helper()
	pods := b.client.CoreV1().Pods(metav1.NamespaceDefault)
	b.Expect(pods.DeleteCollection(b.t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))},
		metav1.ListOptions{})).To(Succeed())
	b.Eventually(func(g Gomega) {
		left, err := pods.List(b.t.Context(), metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(left.Items).To(BeEmpty())
	}, "1m", "100ms").Should(Succeed())
}

// awaitClient waits until a client runs with its limits, after at least this many restarts, and none where it is 0.
func (b *env) awaitClient(name string, restarts int) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		statuses := b.clientPod(g, name).Status.ContainerStatuses
		g.Expect(statuses).To(HaveLen(1))
		g.Expect(statuses[0].Ready).To(BeTrue(), "%+v", statuses[0])
		if restarts == 0 {
			g.Expect(statuses[0].RestartCount).To(BeZero())
		}
		g.Expect(statuses[0].RestartCount).To(BeNumerically(">=", restarts))
		log, err := b.client.CoreV1().Pods(metav1.NamespaceDefault).GetLogs(name, &corev1.PodLogOptions{}).
			DoRaw(b.t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(log)).To(Equal(clientLimits))
	}, "3m", "100ms").Should(Succeed(), func() string { return fmt.Sprintf("%+v", b.clientPod(b, name).Status) })
}

func (b *env) clientPod(g Gomega, name string) *corev1.Pod {
	pod, err := b.client.CoreV1().Pods(metav1.NamespaceDefault).Get(b.t.Context(), name, metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	return pod
}

// computeMode returns the compute mode of the machine's GPUs.
func (b *env) computeMode() string {
	b.t.Helper()
	content, err := os.ReadFile(b.machine.Running("/proc/driver/nvidia/compute-mode"))
	b.Expect(err).NotTo(HaveOccurred())
	return string(content)
}
