//go:build linux

package node_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// checkChosen shares the GPUs by the node's label, which selects another configuration than the default before the pods
// start: nothing of the default is ever seen, also if the containers that follow the label are killed. Then the label
// selects MPS, where the default does not share GPUs.
func (b *env) checkChosen() {
	cluster.SkipInSample(b.t)
	const name = "chosen"
	shared := func(kind string, replicas int) string {
		return fmt.Sprintf("{version: v1, sharing: {%s: {resources: [{name: %s, replicas: %d}]}}}",
			kind, gpuResource, replicas)
	}
	configMaps := b.client.CoreV1().ConfigMaps(namespace)
	_, err := configMaps.Create(b.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{
			"four": shared("timeSlicing", 4), "two": shared("timeSlicing", 2), "mps": shared("mps", mpsShares),
			"exclusive": "version: v1",
		},
	}, metav1.CreateOptions{})
	b.Expect(err).NotTo(HaveOccurred())
	fallBackTo := func(key string) {
		b.patchPolicy(map[string]any{"spec": map[string]any{
			"devicePlugin": map[string]any{"config": map[string]any{"name": name, "default": key}},
		}})
	}

	seen := b.follow(func(node *corev1.Node) map[string]string {
		return map[string]string{
			"GPUs": node.Status.Allocatable.Name(gpuResource, "").String(), "label": node.Labels[replicasLabel],
		}
	})
	b.label(configLabel, "two")
	begin := time.Now()
	fallBackTo("four")
	b.expectShares("chosen before the pods start", begin, 2, time.Minute)
	b.awaitReady()
	b.Eventually(func(g Gomega) { g.Expect(b.node(g).Labels).To(HaveKeyWithValue(replicasLabel, "2")) }, "1m", "100ms").
		Should(Succeed(), b.describe)
	b.Expect(seen()["GPUs"]).To(HaveEach(BeElementOf("0", fmt.Sprint(gpus), fmt.Sprint(2*gpus))))
	b.Expect(seen()["label"]).To(HaveEach(BeElementOf("", "1", "2")))
	b.expectNoRestarts(configured...)
	readers := []target{devicePlugin, discovery}
	for _, reader := range readers {
		b.Expect(b.read(reader)).To(Equal([]string{"2"}), reader.container)
	}

	b.killFollowers(true)
	b.killFollowers(false)
	b.label(configLabel, "exclusive")
	b.awaitDevices(map[corev1.ResourceName]int{gpuResource: gpus})
	// Each start and each signal makes them read their configuration; this one shares nothing.
	for _, reader := range readers {
		b.Eventually(func() []string { return b.read(reader) }, "10s", "100ms").
			Should(Equal([]string{"2", ""}), reader.container)
		b.Expect(b.container(b, reader).RestartCount).To(BeZero(), reader.container)
	}

	fallBackTo("exclusive")
	b.awaitReady()
	b.addEnded()
	b.load(played(clientImage, "mps-client"))
	begin = time.Now()
	b.label(configLabel, "mps")
	b.expectShares("MPS by the label", begin, mpsShares, mpsWithin)
	b.awaitReady()
	b.expectNoRestarts(configured...)
	b.createClient("client", 1)
	b.awaitClient("client", 0)
	b.endClients()
	b.label(configLabel, "two")
	b.awaitWithoutMPS()
	b.awaitDevices(map[corev1.ResourceName]int{gpuResource: 2 * gpus})
	b.patchPolicy(map[string]any{"spec": map[string]any{"devicePlugin": map[string]any{"config": nil}}})
	b.awaitDevices(map[corev1.ResourceName]int{gpuResource: gpus})
	b.patchLabel(configLabel, "null")
	b.awaitReady()
	b.Expect(configMaps.Delete(b.t.Context(), name, metav1.DeleteOptions{})).To(Succeed())
}

// read returns the configurations that a program has read since it started, one after the other: how often each shares
// a GPU, empty for one that does not.
func (b *env) read(reader target) []string {
	b.t.Helper()
	var found []string
	for _, config := range strings.Split(b.log(b, reader), "Running with config:")[1:] {
		_, after, _ := strings.Cut(config, `"replicas": `)
		replicas, _, _ := strings.Cut(after, "\n")
		found = append(found, replicas)
	}
	return found
}

// expectNoRestarts requires that no container of these operands has been started again.
func (b *env) expectNoRestarts(apps ...string) {
	b.t.Helper()
	for _, pod := range b.pods() {
		if slices.Contains(apps, pod.Labels["app"]) {
			b.Expect(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)).
				To(HaveEach(HaveField("RestartCount", int32(0))), pod.Name)
		}
	}
}

// followers returns the processes that follow the node's label.
func (b *env) followers() []int {
	return slices.DeleteFunc(b.machine.Processes("/usr/bin/gpu-node"), func(pid int) bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err != nil || !strings.Contains(string(line), "\x00configure")
	})
}

// killFollowers kills the processes that follow the node's label, also while they cannot reach the API server, and
// waits until the kubelet has restarted them and they have called it: the configuration stays linked.
func (b *env) killFollowers(unreachable bool) {
	b.t.Helper()
	links := func() (linked []string) {
		const pattern = "/var/lib/kubelet/pods/*/volumes/kubernetes.io~empty-dir/config/config.yaml"
		found, err := filepath.Glob(b.machine.Running(pattern))
		b.Expect(err).NotTo(HaveOccurred())
		for _, link := range found {
			to, err := os.Readlink(link)
			b.Expect(err).NotTo(HaveOccurred())
			linked = append(linked, to)
		}
		return linked
	}
	before, linked := b.followers(), links()
	b.Expect(before).To(HaveLen(2))
	b.Expect(linked).To(HaveLen(2))
	b.services.Refuse(unreachable)
	defer b.services.Refuse(false)
	for _, pid := range before {
		b.Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
	}
	b.Eventually(func(g Gomega) {
		now := b.followers()
		g.Expect(now).To(HaveLen(len(before)))
		for _, pid := range now {
			g.Expect(before).NotTo(ContainElement(pid))
		}
		for _, reader := range []target{devicePlugin, discovery} {
			reader.container = "config-manager"
			g.Expect(b.container(g, reader).State.Running).NotTo(BeNil())
			if unreachable {
				g.Expect(b.log(g, reader)).To(ContainSubstring("the Node cannot be watched"))
			}
		}
	}, "1m", "100ms").Should(Succeed(), b.describe)
	b.Expect(links()).To(Equal(linked))
}

// addEnded leaves a process on the machine that has ended and that nobody waits for. Like a thread of the kernel it has
// no command line.
func (b *env) addEnded() {
	b.t.Helper()
	namespace, err := os.Open(b.machine.Running("/proc/1/ns/pid"))
	b.Expect(err).NotTo(HaveOccurred())
	defer namespace.Close()
	ended, started := exec.CommandContext(b.t.Context(), "true"), make(chan error)
	go func() {
		runtime.LockOSThread() // The thread ends with this function.
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWPID); err != nil {
			started <- err
			return
		}
		started <- ended.Start()
	}()
	b.Expect(<-started).To(Succeed())
	// Without it the machine cannot be switched off.
	b.t.Cleanup(func() { b.Expect(ended.Wait()).To(Succeed()) })
	commandLine := fmt.Sprintf("/proc/%d/cmdline", ended.Process.Pid)
	b.Eventually(func() ([]byte, error) { return os.ReadFile(commandLine) }, "10s", "20ms").Should(BeEmpty())
}
