package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	// mixedPasses is the number of passes over which a mixed cluster must not change.
	mixedPasses = 50
	// passesMade is the metric that counts them.
	passesMade = "gpu_operator_reconciliation_total"
)

// mixedNode is a node of a mixed cluster, and what must run on it.
type mixedNode struct {
	spec simulator.NodeSpec
	// driver is the suffix of the image of its precompiled driver, runtime what its toolkit configures.
	driver, runtime string
}

// mixedNodes returns one node of each variant: four operating systems, two kernels of each, two architectures, two
// runtimes.
func mixedNodes() []mixedNode {
	var all []mixedNode
	for _, system := range []struct{ id, version, tag string }{
		{"ubuntu", "24.04", "ubuntu24.04"}, {"ubuntu", "22.04", "ubuntu22.04"}, {"rhel", "9.6", "rhel9"}, {
			"sles", "15.7", "sles15.7",
		},
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

// TestAMixedClusterIsStable: nodes of every variant get the driver of their operating system, kernel and architecture
// and the toolkit of their runtime. Passes then write nothing, and an added pool only changes its own objects.
func TestAMixedClusterIsStable(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{timing: simulator.DefaultTiming().Scale(0.1)})
	nodes := mixedNodes()
	for _, node := range nodes {
		_, err := e.sim.AddNode(t.Context(), node.spec)
		e.Expect(err).NotTo(HaveOccurred())
	}
	address := freeAddress(t)
	e.run("--metrics-bind-address="+address, "--metrics-secure=false")
	object := e.samplePolicy()
	object.Spec.Driver.UsePrecompiled, object.Spec.Driver.Version = new(true), "595"
	e.create(object)
	e.awaitReady(len(nodes))
	for _, node := range nodes {
		e.servesMixedNode(node)
	}
	e.Expect(e.driverDaemonSets()).To(HaveLen(len(nodes)/2), "one for each operating system, kernel and architecture")
	e.passesWriteNothing(address)
	e.poolTouchesItsOwn(nodes[0].spec.Name)
}

// servesMixedNode compares the pods of a node with what its variant needs.
func (e *env) servesMixedNode(node mixedNode) {
	e.t.Helper()
	name := node.spec.Name
	driver := e.podOn("nvidia-driver-daemonset", name)
	e.Expect(driver).NotTo(BeNil(), name)
	e.Expect(driver.Spec.Containers[0].Image).To(HaveSuffix(node.driver), name)
	e.Expect(driver.Labels).To(HaveKeyWithValue(labels.Pool, ContainSubstring(node.spec.Arch)), name)
	toolkit := e.podOn("nvidia-container-toolkit-daemonset", name)
	e.Expect(toolkit).NotTo(BeNil(), name)
	e.Expect(toolkit.Spec.Containers[0].Env).To(ContainElement(corev1.EnvVar{Name: "RUNTIME", Value: node.runtime}), name)
}

// passesWriteNothing causes passes repeatedly. Counters of the status are delayed by up to 10 s, and may be written
// in the first half of the passes, which takes longer.
func (e *env) passesWriteNothing(address string) {
	e.t.Helper()
	made := func() float64 { return e.samples(address)[passesMade] }
	mark, begin := e.mark(), made()
	late := mark
	for i := range mixedPasses {
		if i == mixedPasses/2 {
			late = e.mark()
		}
		ds := e.daemonSet(pluginName)
		e.Expect(e.edit(ds, func() { ds.Labels["team"] = fmt.Sprint(i) })).To(Succeed())
		e.Eventually(made).WithPolling(20 * time.Millisecond).Should(BeNumerically(">", begin+float64(i)))
	}
	for _, call := range e.operatorCalls(mark).Writes() {
		e.Expect(call.Resource).To(Equal("clusterpolicies"), "only a counter of the status may be late, not %s", call)
	}
	e.Expect(e.operatorCalls(late).Writes().String()).To(BeEmpty())
	e.t.Logf("%.0f passes wrote nothing", made()-begin)
}

// poolTouchesItsOwn adds a pool that one node belongs to.
func (e *env) poolTouchesItsOwn(member string) {
	e.t.Helper()
	whole, bystanders := e.written(), e.pods()
	e.relabel(member, teamLabel, "a")
	pool := teamA()
	pool.Driver.Version = "590"
	e.respec(func(spec *v1.ClusterPolicySpec) { spec.NodePools = []v1.NodePoolSpec{pool} })
	e.Eventually(func() []v1.NodePoolStatus { return e.policy().Status.NodePools }).
		Should(ConsistOf(And(HaveField("Name", "team-a"), HaveField("Nodes", int32(1)), HaveField("Ready", int32(1)))))
	e.Expect(e.ofNoPool()).To(Equal(whole), "only objects of the pool were written")
	after := e.pods()
	for key, uid := range bystanders {
		if !strings.HasSuffix(key, " on "+member) {
			e.Expect(after).To(HaveKeyWithValue(key, uid), "a pod of another node")
		}
	}
}
