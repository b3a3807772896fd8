package integration

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	deployDriver, deployToolkit = "nvidia.com/gpu.deploy.driver", "nvidia.com/gpu.deploy.container-toolkit"
	toolkitAnchor               = labels.AnchorPrefix + "container-toolkit"
)

// anchored returns the pods of the operands whose nodes have an anchor, by operand and node.
func (e *env) anchored() map[string]types.UID {
	pods := e.podsOf("driver")
	maps.Copy(pods, e.podsOf("container-toolkit"))
	return pods
}

// TestALostLabelReloadsNoDriver removes labels of the operator from a node, in every way in which one can be lost.
// They are restored, and neither the driver's pod nor the toolkit's is replaced.
func TestALostLabelReloadsNoDriver(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	for _, spec := range []simulator.NodeSpec{
		{Name: "cpu", NoGPU: true}, {Name: "blank", NoGPU: true, NeverDiscovered: true},
	} {
		_, err := e.sim.AddNode(t.Context(), spec)
		e.Expect(err).NotTo(HaveOccurred())
	}
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(2)
	const node = "gpu-00000"
	pods, whole := e.anchored(), e.node(node).Labels
	own := map[string]string{}
	for _, prefix := range []string{
		labels.DeployPrefix, "nvidia.com/gpu-operator.", labels.GPUPresent, labels.AnchorPrefix,
	} {
		for _, key := range keysOf(whole, prefix) {
			own[key] = whole[key]
		}
	}
	e.Expect(pods).To(HaveLen(4), "two of each, and none on the other nodes")
	lost := map[string][]string{
		"deploy label of the driver":      {deployDriver},
		"deploy label of the toolkit":     {deployToolkit},
		"pool":                            {labels.Pool},
		"runtime":                         {labels.Layout},
		"both of the driver":              {deployDriver, labels.Pool},
		"both of the toolkit":             {deployToolkit, labels.Layout},
		"anchors":                         {labels.DriverAnchor, toolkitAnchor},
		"all of nvidia.com, as a replace": keysOf(whole, "nvidia.com/"),
	}
	for name, keys := range lost {
		t.Run(name, func(t *testing.T) {
			e := e.in(t)
			begin := time.Now()
			e.lose(node, keys...)
			e.Eventually(func(g Gomega) {
				labels := e.node(node).Labels
				for key, value := range own {
					g.Expect(labels).To(HaveKeyWithValue(key, value))
				}
			}).WithPolling(20 * time.Millisecond).Should(Succeed())
			t.Logf("back after %s", time.Since(begin).Round(10*time.Millisecond))
			e.awaitReady(2)
			e.Expect(e.anchored()).To(Equal(pods))
		})
	}
	e.settled()
	e.Expect(e.anchored()).To(Equal(pods), "after all removed labels have had their effect")
	t.Run("repeatedly", func(t *testing.T) {
		e := e.in(t)
		for range 10 {
			e.lose(node, deployDriver, labels.Pool)
			time.Sleep(500 * time.Millisecond)
		}
		e.awaitReady(2)
		e.Expect(e.anchored()).To(Equal(pods))
	})
	t.Run("the operator itself releases a node", func(t *testing.T) {
		e := e.in(t)
		e.relabel(node, labels.DeployOperands, labels.False)
		e.Eventually(e.anchored).Should(HaveLen(2))
		e.Expect(e.node(node).Labels).NotTo(HaveKey(HavePrefix(labels.AnchorPrefix)))
		e.relabel(node, labels.DeployOperands, "")
		e.Eventually(e.anchored).Should(HaveLen(4))
		e.awaitReady(2)
	})
	t.Run("another value removes the driver", func(t *testing.T) {
		e := e.in(t)
		e.relabel(node, deployDriver, "false")
		e.Eventually(func() map[string]types.UID { return e.podsOf("driver") }).Should(HaveLen(1))
		e.relabel(node, deployDriver, "")
		e.Eventually(func() map[string]types.UID { return e.podsOf("driver") }).Should(HaveLen(2))
	})
}

func keysOf(all map[string]string, prefix string) []string {
	var keys []string
	for key := range all {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

// lose removes labels from a node in one write.
func (e *env) lose(node string, keys ...string) {
	e.t.Helper()
	e.Eventually(func() error {
		live := e.node(node)
		for _, key := range keys {
			delete(live.Labels, key)
		}
		return e.client.Update(e.t.Context(), live)
	}).Should(Succeed())
}

// TestAFirstPoolKeepsItsDaemonSet: a second operating system joins, the nodes of the first leave, and the operator
// restarts in between. No pod of a remaining node is replaced, and no DaemonSet changes its name.
func TestAFirstPoolKeepsItsDaemonSet(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	again := func() {
		e.stop()
		e.run()
	}
	e.run()
	e.create(e.samplePolicy())
	e.awaitReady(1)
	first := e.anchored()
	e.Expect(e.drivers()).To(Equal(map[string]string{"nvidia-driver-daemonset": "app=nvidia-driver-daemonset"}))
	e.Expect(e.selectorOf("nvidia-container-toolkit-daemonset")).To(Equal("app=nvidia-container-toolkit-daemonset"))

	// Its name sorts before that of the first pool.
	_, err := e.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "older", OSVersion: "22.04", Runtime: "cri-o://1.33.0"})
	e.Expect(err).NotTo(HaveOccurred())
	e.awaitReady(2)
	const second = "nvidia-driver-daemonset-ubuntu22.04-amd64"
	e.Expect(e.drivers()).To(Equal(map[string]string{
		"nvidia-driver-daemonset": "app=nvidia-driver-daemonset", second: "app=" + second,
	}))
	e.Expect(e.selectorOf("nvidia-container-toolkit-daemonset-crio")).
		To(Equal("app=nvidia-container-toolkit-daemonset-crio"))
	both := e.anchored()
	for of, uid := range first {
		e.Expect(both).To(HaveKeyWithValue(of, uid))
	}
	again()
	e.awaitReady(2)
	e.Expect(e.anchored()).To(Equal(both))

	e.Expect(e.client.Delete(t.Context(), e.node("gpu-00000"))).To(Succeed())
	e.Eventually(e.drivers).WithTimeout(time.Minute).Should(Equal(map[string]string{second: "app=" + second}))
	again()
	e.awaitReady(1)
	e.Expect(e.drivers()).To(Equal(map[string]string{second: "app=" + second}))
	for of, uid := range e.anchored() {
		e.Expect(both).To(HaveKeyWithValue(of, uid))
	}
}

// drivers returns the selectors of the driver's DaemonSets, by name.
func (e *env) drivers() map[string]string {
	found := map[string]string{}
	list := &appsv1.DaemonSetList{}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(namespace),
		client.MatchingLabels{labels.Operand: "driver"})).To(Succeed())
	for _, ds := range list.Items {
		found[ds.Name] = selectorText(&ds)
	}
	return found
}

func (e *env) selectorOf(name string) string { return selectorText(e.daemonSet(name)) }

func selectorText(ds *appsv1.DaemonSet) string {
	var parts []string
	for key, value := range ds.Spec.Selector.MatchLabels {
		parts = append(parts, fmt.Sprintf("%s=%s", key, value))
	}
	return strings.Join(parts, ",")
}
