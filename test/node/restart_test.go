//go:build linux

package node_test

import (
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// markers are those of a whole stack, in the order in which they are written.
var markers = []string{"driver-ready", "toolkit-ready", "cuda-ready", "plugin-ready"}

// checkRestart cuts the machine's power and boots it: kubelet, containerd, the operators and all operands are killed,
// and what was in memory is gone; the operators are killed once more halfway. The stack comes back in order, and the
// pod of a user is kept. Each program takes another while to start; the driver until all containers that wait for a
// marker do so, as on a node whose driver is built; the toolkit until the driver is validated, though the earlier
// handler and description of the driver exist: they inject nothing.
func (b *env) checkRestart() {
	ctx := b.t.Context()
	b.load(played("example.com/work:1", "pause"))
	_, err := b.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "long-work"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "work", Image: "example.com/work:1",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpuResource: resource.MustParse("1")}},
		}}},
	}, metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	work := func(g Gomega) *corev1.Pod {
		pod, err := b.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, "long-work", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		return pod
	}
	b.Eventually(func(g Gomega) { g.Expect(work(g).Status.Phase).To(Equal(corev1.PodRunning)) }, "30s", "50ms").
		Should(Succeed())
	before := work(b)
	mark, err := b.cluster.Mark()
	b.Expect(err).NotTo(HaveOccurred())

	keep := b.keepDescription()
	b.Expect(b.machine.PowerOff()).To(Succeed())
	undo := b.delay(2 * time.Second)
	for _, held := range []target{driver, toolkit} {
		b.Expect(b.machine.Order(held.program, &node.Order{Fault: "hang"})).To(Succeed())
	}
	begin := time.Now()
	b.Expect(b.machine.PowerOn(ctx)).To(Succeed())
	keep()
	firstWritten := b.followMarkers(begin)
	waiting := b.awaitWaiting(begin)
	b.t.Logf("%d pods waited for markers after %s", waiting, since(begin))
	b.Expect(b.machine.Order(driver.program, nil)).To(Succeed())
	b.killOperators(begin)
	b.letToolkitFollow(begin)
	var written []time.Time
	b.Eventually(func(g Gomega) {
		written = nil
		for _, marker := range markers {
			info, err := os.Stat(b.machine.Running("/run/nvidia/validations/" + marker))
			g.Expect(err).NotTo(HaveOccurred())
			written = append(written, info.ModTime())
		}
	}, "2m", "100ms").Should(Succeed(), b.describe)
	for i, at := range written {
		b.t.Logf("%-13s after %s", markers[i], at.Sub(begin).Round(time.Millisecond))
		b.Expect(at).To(BeTemporally(">", begin), "nothing of before the restart is left")
		if i > 0 {
			b.Expect(at).To(BeTemporally(">=", written[i-1]), markers[i])
		}
	}
	b.checkOrder(begin, firstWritten)
	undo()
	b.Eventually(func(g Gomega) {
		b.expectStartedSince(g, begin)
		policy, err := b.policy()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(policy.Status.State).To(Equal(v1.StateReady))
	}, "2m", "200ms").Should(Succeed(), b.describe)
	b.t.Logf("all was ready again after %s", since(begin))
	b.checkInjections(begin)

	after := work(b)
	b.t.Logf("the pod of the user is %s, %s", after.Status.Phase, after.Status.Reason)
	b.Expect(after.UID).To(Equal(before.UID))
	b.Expect(after.DeletionTimestamp).To(BeNil())
	calls, err := b.cluster.Since(mark)
	b.Expect(err).NotTo(HaveOccurred())
	for _, call := range calls.Writes() {
		b.Expect(call.Resource == "pods" && call.Namespace == metav1.NamespaceDefault).To(BeFalse(), "%+v", call)
	}
	b.Expect(calls.By(cluster.ServiceAccountUser(namespace, account))).NotTo(BeEmpty())
	b.checkHandOvers(waiting)
}

// expectStartedSince requires that each container of the operator and of its operands was started since then, and is
// ready; except for pods with some names.
func (b *env) expectStartedSince(g Gomega, begin time.Time, without ...string) {
	pods, err := b.client.CoreV1().Pods(namespace).List(b.t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods.Items).NotTo(BeEmpty())
	for i := range pods.Items {
		if slices.ContainsFunc(without, func(part string) bool { return strings.Contains(pods.Items[i].Name, part) }) {
			continue
		}
		for _, container := range pods.Items[i].Status.ContainerStatuses {
			g.Expect(container.Ready).To(BeTrue(), "%s of %s", container.Name, pods.Items[i].Name)
			g.Expect(container.State.Running).NotTo(BeNil())
			// The API has whole seconds.
			g.Expect(container.State.Running.StartedAt.Time).To(BeTemporally(">=", begin.Truncate(time.Second)))
		}
	}
}
