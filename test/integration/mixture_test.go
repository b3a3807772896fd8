package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	// mixedPasses is over how many passes a mixed cluster must stay as it is.
	mixedPasses = 50
	// passesMade is the metric that counts them.
	passesMade = "gpu_operator_reconciliation_total"
)

// mixedNode is a node of a mixed cluster, and what must run there.
type mixedNode struct {
	spec simulator.NodeSpec
	// driver is the end of the image of its precompiled driver, runtime what its toolkit configures.
	driver, runtime string
}

// mixedNodes are one of each kind: four operating systems, two kernels of each, two architectures, two runtimes.
func mixedNodes() []mixedNode {
	var all []mixedNode
	for _, system := range []struct{ id, version, tag string }{
		{"ubuntu", "24.04", "ubuntu24.04"}, {"ubuntu", "22.04", "ubuntu22.04"}, {"rhel", "9.6", "rhel9"}, {"sles", "15.7", "sles15.7"},
	} {
		for _, release := range []string{"60", "71"} {
			kernel := "6.8.0-" + release + "-" + system.id
			for _, arch := range []string{"amd64", "arm64"} {
				for runtime, version := range map[string]string{"containerd": "containerd://2.1.4", "crio": "cri-o://1.34.1"} {
					all = append(all, mixedNode{
						spec: simulator.NodeSpec{
							Name: strings.Join([]string{system.tag, release, arch, runtime}, "-"),
							OS:   system.id, OSVersion: system.version, Kernel: kernel, Arch: arch, Runtime: version,
						},
						driver: fmt.Sprintf("/driver:595-%s-%s", kernel, system.tag), runtime: runtime,
					})
				}
			}
		}
	}
	return all
}

// TestAMixedClusterIsStable: nodes of every kind get the driver of their operating system, kernel and architecture and
// the toolkit of their runtime. Passes then write nothing, and a pool that is added touches no object but its own.
func TestAMixedClusterIsStable(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{timing: simulator.DefaultTiming().Scale(0.1)})
	nodes := mixedNodes()
	for _, node := range nodes {
		_, err := b.sim.AddNode(t.Context(), node.spec)
		b.Expect(err).NotTo(HaveOccurred())
	}
	address := freeAddress(t)
	b.run("--metrics-bind-address="+address, "--metrics-secure=false")
	object := b.samplePolicy()
	object.Spec.Driver.UsePrecompiled, object.Spec.Driver.Version = new(true), "595"
	b.create(object)
	b.awaitReady(len(nodes))
	for _, node := range nodes {
		b.servesMixedNode(node)
	}
	b.Expect(b.driverDaemonSets()).To(HaveLen(len(nodes)/2), "one for each operating system, kernel and architecture")
	b.passesWriteNothing(address)
	b.poolTouchesItsOwn(nodes[0].spec.Name)
}

// servesMixedNode compares the pods of a node with what its kind needs.
func (b *bed) servesMixedNode(node mixedNode) {
	b.t.Helper()
	name := node.spec.Name
	driver := b.podOn("nvidia-driver-daemonset", name)
	b.Expect(driver).NotTo(BeNil(), name)
	b.Expect(driver.Spec.Containers[0].Image).To(HaveSuffix(node.driver), name)
	b.Expect(driver.Labels).To(HaveKeyWithValue(labels.Pool, ContainSubstring(node.spec.Arch)), name)
	toolkit := b.podOn("nvidia-container-toolkit-daemonset", name)
	b.Expect(toolkit).NotTo(BeNil(), name)
	b.Expect(toolkit.Spec.Containers[0].Env).To(ContainElement(corev1.EnvVar{Name: "RUNTIME", Value: node.runtime}), name)
}

// passesWriteNothing has the operator look at its objects again and again. Counters of the status are written late:
// they may come in the first half of the passes, in more than the 10 s that they take.
func (b *bed) passesWriteNothing(address string) {
	b.t.Helper()
	made := func() float64 { return b.samples(address)[passesMade] }
	mark, begin := b.mark(), made()
	late := mark
	for i := range mixedPasses {
		if i == mixedPasses/2 {
			late = b.mark()
		}
		ds := b.daemonSet(pluginName)
		b.Expect(b.edit(ds, func() { ds.Labels["team"] = fmt.Sprint(i) })).To(Succeed())
		b.Eventually(made).WithPolling(20 * time.Millisecond).Should(BeNumerically(">", begin+float64(i)))
	}
	for _, call := range b.operatorCalls(mark).Writes() {
		b.Expect(call.Resource).To(Equal("clusterpolicies"), "only a counter of the status may be late, not %s", call)
	}
	b.Expect(b.operatorCalls(late).Writes().String()).To(BeEmpty())
	b.t.Logf("%.0f passes wrote nothing", made()-begin)
}

// poolTouchesItsOwn adds a pool that one node belongs to.
func (b *bed) poolTouchesItsOwn(member string) {
	b.t.Helper()
	whole, bystanders := b.written(), b.pods()
	b.relabel(member, teamLabel, "a")
	pool := teamA()
	pool.Driver.Version = "590"
	b.respec(func(spec *v1.ClusterPolicySpec) { spec.NodePools = []v1.NodePoolSpec{pool} })
	b.Eventually(func() []v1.NodePoolStatus { return b.policy().Status.NodePools }).
		Should(ConsistOf(And(HaveField("Name", "team-a"), HaveField("Nodes", int32(1)), HaveField("Ready", int32(1)))))
	b.Expect(b.ofNoPool()).To(Equal(whole), "nothing but the pool's own was written")
	after := b.pods()
	for key, uid := range bystanders {
		if !strings.HasSuffix(key, " on "+member) {
			b.Expect(after).To(HaveKeyWithValue(key, uid), "a pod of another node")
		}
	}
}
