//go:build linux

package node_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

const machineName = "real"

// env is a control plane with one real node.
type env struct {
	*WithT
	t       *testing.T
	cluster *cluster.Cluster
	machine *node.Machine
	// services are those of the pods, which reach the API server by one of them.
	services *node.Services
	client   kubernetes.Interface
}

func newEnv(t *testing.T) *env {
	t.Helper()
	return newEnvWith(t, cluster.Options{}, node.Options{})
}

// newEnvWith is newEnv with options of the control plane, and with the node's GPUs and the driver of its own system.
func newEnvWith(t *testing.T, options cluster.Options, hardware node.Options) *env {
	t.Helper()
	b := &env{WithT: NewWithT(t), t: t}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	var err error
	options.Version, options.Address = cluster.Newest, node.Address
	b.cluster, err = cluster.Start(ctx, options)
	b.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { b.Expect(b.cluster.Stop()).To(Succeed()) })
	b.client, err = kubernetes.NewForConfig(b.cluster.Config)
	b.Expect(err).NotTo(HaveOccurred())
	b.services, err = node.StartServices(t.Context(), b.cluster.SimulatorConfig)
	b.Expect(err).NotTo(HaveOccurred())
	t.Logf("the control plane was up after %s", since(begin))
	of := machineOptions(t, b.cluster)
	of.Device, of.HostDriver = hardware.Device, hardware.HostDriver
	b.machine, err = node.New(of)
	b.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(b.machine.Logs())
		}
		b.Expect(b.machine.PowerOff()).To(Succeed())
	})
	b.Expect(b.machine.PowerOn(ctx)).To(Succeed())
	t.Logf("the container runtime answered after %s", since(begin))
	b.load(standIn("example.com/pause:1", "pause"))
	b.awaitNode()
	t.Logf("the node was ready after %s", since(begin))
	return b
}

// gpus is the number of the machine's GPUs.
const gpus = 4

func machineOptions(t *testing.T, c *cluster.Cluster) node.Options {
	t.Helper()
	return node.Options{
		Name: machineName, Binaries: binaries(t), StandIn: os.Getenv(standInVariable),
		Kubeconfig: c.KubeletKubeconfig(), GPUs: gpus,
	}
}

// in returns the environment for a subtest: a failure ends the subtest.
func (b *env) in(t *testing.T) *env {
	view := *b
	view.t, view.WithT = t, NewWithT(t)
	return &view
}

// describe returns the state of the pods of the operator's namespace, for a test that fails.
func (b *env) describe() string {
	var text strings.Builder
	pods, err := b.client.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		fmt.Fprintf(&text, "pod %s: %s\n", pod.Name, pod.Status.Phase)
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			fmt.Fprintf(&text, "  %s ready=%t restarts=%d %s\n", c.Name, c.Ready, c.RestartCount, c.State.String())
		}
	}
	events, err := b.client.CoreV1().Events(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for _, event := range events.Items[max(0, len(events.Items)-20):] {
		fmt.Fprintf(&text, "event %s %s: %s\n", event.InvolvedObject.Name, event.Reason, event.Message)
	}
	return text.String()
}

func since(begin time.Time) time.Duration { return time.Since(begin).Round(time.Millisecond) }

// load loads an image on the node.
func (b *env) load(image node.Image) {
	b.t.Helper()
	b.Expect(b.machine.Import(b.t.Context(), bytes.NewReader(archive(b.WithT, image)))).To(Succeed())
}

func archive(g *WithT, image node.Image) []byte {
	content, err := image.Archive()
	g.Expect(err).NotTo(HaveOccurred())
	return content
}

// standIn is an image with one program, which the stand-in plays.
func standIn(name, program string) node.Image {
	return node.Image{
		Names: []string{
			name,
		}, Files: map[string]string{program: os.Getenv(standInVariable)}, Entrypoint: []string{"/" + program},
	}
}

func echo() node.Image { return standIn("example.com/echo:1", "echo") }

func (b *env) awaitNode() {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		object, err := b.client.CoreV1().Nodes().Get(b.t.Context(), machineName, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(object.Status.Conditions).To(ContainElement(And(
			HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
	}).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(Succeed())
}

func TestAContainerRuns(t *testing.T) {
	b := newEnv(t)
	b.load(echo())
	pods := b.client.CoreV1().Pods(metav1.NamespaceDefault)
	_, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "echo"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "echo", Image: "example.com/echo:1", Args: []string{"a", "word"}}},
		},
	}, metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	b.Eventually(func(g Gomega) {
		pod, err := pods.Get(t.Context(), "echo", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodSucceeded), "%v", pod.Status)
		g.Expect(pod.Spec.NodeName).To(Equal(machineName))
	}).WithTimeout(time.Minute).WithPolling(50 * time.Millisecond).Should(Succeed())
	log, err := pods.GetLogs("echo", &corev1.PodLogOptions{}).DoRaw(t.Context())
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(string(log)).To(Equal("a word\n"))
}
