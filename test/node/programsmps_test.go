//go:build linux

package node_test

import (
	"fmt"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// checkProgramsMPS shares the GPUs with NVIDIA's control daemon: plugin and daemon come up in either order, a pod gets
// its part of memory and threads, and works again after the daemon was killed; then they are not shared any more.
func (b *env) checkProgramsMPS() {
	cluster.SkipInSample(b.t)
	b.load(played(clientImage, "mps-client"))
	before := b.containers(configured...)
	begin := time.Now()
	b.share("shared by MPS", map[string]any{"mps": map[string]any{"replicas": mpsShares}}, mpsShares, mpsWithin)
	b.checkDaemonOrder(begin)
	b.Expect(b.computeMode()).To(Equal("EXCLUSIVE_PROCESS"))
	b.createClient("client", 1)
	b.awaitClient("client", 0)
	b.createClient("greedy", 2)
	b.Eventually(func(g Gomega) {
		g.Expect(b.clientPod(g, "greedy").Status).To(And(HaveField("Phase", corev1.PodFailed),
			HaveField("Reason", "UnexpectedAdmissionError"), HaveField("Message", ContainSubstring("maximum request size"))))
	}, "1m", "100ms").Should(Succeed())
	b.killDaemon(b.process(daemonPath, daemonPath), "client")
	b.endClients()
	b.share("shared no more", nil, 1, mpsWithin)
	b.Expect(b.containers(configured...)).To(Equal(before), "no other container is restarted")
	b.awaitWithoutMPS()
}

// processRoot returns where this computer has the root of a process.
func processRoot(pid int) string { return fmt.Sprintf("/proc/%d/root", pid) }
