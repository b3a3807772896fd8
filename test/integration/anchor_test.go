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

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	deployDriver, deployToolkit = "nvidia.com/gpu.deploy.driver", "nvidia.com/gpu.deploy.container-toolkit"
	toolkitAnchor               = labels.AnchorPrefix + "container-toolkit"
)

// anchored are the pods of the operands whose nodes have an anchor, by operand and node.
func (b *bed) anchored() map[string]types.UID {
	pods := b.podsOf("driver")
	maps.Copy(pods, b.podsOf("container-toolkit"))
	return pods
}

// TestALostLabelReloadsNoDriver takes labels of the operator off a node, in every way in which one is lost. They come
// back, and neither the driver's pod nor the toolkit's is replaced.
func TestALostLabelReloadsNoDriver(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 2, timing: simulator.DefaultTiming().Scale(0.1)})
	for _, spec := range []simulator.NodeSpec{{Name: "cpu", NoGPU: true}, {Name: "blank", NoGPU: true, NeverDiscovered: true}} {
		_, err := b.sim.AddNode(t.Context(), spec)
		b.Expect(err).NotTo(HaveOccurred())
	}
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(2)
	const node = "gpu-00000"
	pods, whole := b.anchored(), b.node(node).Labels
	own := map[string]string{}
	for _, prefix := range []string{labels.DeployPrefix, "nvidia.com/gpu-operator.", labels.GPUPresent, labels.AnchorPrefix} {
		for _, key := range keysOf(whole, prefix) {
			own[key] = whole[key]
		}
	}
	b.Expect(pods).To(HaveLen(4), "two of each, and none on the other nodes")
	lost := map[string][]string{
		"deploy label of the driver":      {deployDriver},
		"deploy label of the toolkit":     {deployToolkit},
		"pool":                            {labels.Pool},
		"runtime":                         {labels.Runtime},
		"both of the driver":              {deployDriver, labels.Pool},
		"both of the toolkit":             {deployToolkit, labels.Runtime},
		"anchors":                         {labels.DriverAnchor, toolkitAnchor},
		"all of nvidia.com, as a replace": keysOf(whole, "nvidia.com/"),
	}
	for name, keys := range lost {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			begin := time.Now()
			b.lose(node, keys...)
			b.Eventually(func(g Gomega) {
				labels := b.node(node).Labels
				for key, value := range own {
					g.Expect(labels).To(HaveKeyWithValue(key, value))
				}
			}).WithPolling(20 * time.Millisecond).Should(Succeed())
			t.Logf("back after %s", time.Since(begin).Round(10*time.Millisecond))
			b.awaitReady(2)
			b.Expect(b.anchored()).To(Equal(pods))
		})
	}
	b.settled()
	b.Expect(b.anchored()).To(Equal(pods), "once all that was lost has had its effect")
	t.Run("again and again", func(t *testing.T) {
		b := b.in(t)
		for range 10 {
			b.lose(node, deployDriver, labels.Pool)
			time.Sleep(500 * time.Millisecond)
		}
		b.awaitReady(2)
		b.Expect(b.anchored()).To(Equal(pods))
	})
	t.Run("the operator lets go of a node by itself", func(t *testing.T) {
		b := b.in(t)
		b.relabel(node, labels.DeployOperands, labels.False)
		b.Eventually(b.anchored).Should(HaveLen(2))
		b.Expect(b.node(node).Labels).NotTo(HaveKey(HavePrefix(labels.AnchorPrefix)))
		b.relabel(node, labels.DeployOperands, "")
		b.Eventually(b.anchored).Should(HaveLen(4))
		b.awaitReady(2)
	})
	t.Run("another value takes the driver off", func(t *testing.T) {
		b := b.in(t)
		b.relabel(node, deployDriver, "false")
		b.Eventually(func() map[string]types.UID { return b.podsOf("driver") }).Should(HaveLen(1))
		b.relabel(node, deployDriver, "")
		b.Eventually(func() map[string]types.UID { return b.podsOf("driver") }).Should(HaveLen(2))
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

// lose takes labels off a node in one write.
func (b *bed) lose(node string, keys ...string) {
	b.t.Helper()
	b.Eventually(func() error {
		live := b.node(node)
		for _, key := range keys {
			delete(live.Labels, key)
		}
		return b.client.Update(b.t.Context(), live)
	}).Should(Succeed())
}

// TestAFirstPoolKeepsItsDaemonSet: a second operating system joins, the nodes of the first leave, and the operator starts
// again between. No pod of a node that stays is replaced, and no DaemonSet changes its name.
func TestAFirstPoolKeepsItsDaemonSet(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	again := func() {
		b.stop()
		b.run()
	}
	b.run()
	b.create(b.samplePolicy())
	b.awaitReady(1)
	first := b.anchored()
	b.Expect(b.drivers()).To(Equal(map[string]string{"nvidia-driver-daemonset": "app=nvidia-driver-daemonset"}))
	b.Expect(b.selectorOf("nvidia-container-toolkit-daemonset")).To(Equal("app=nvidia-container-toolkit-daemonset"))

	// Its name comes before that of the first pool.
	_, err := b.sim.AddNode(t.Context(), simulator.NodeSpec{Name: "older", OSVersion: "22.04", Runtime: "cri-o://1.33.0"})
	b.Expect(err).NotTo(HaveOccurred())
	b.awaitReady(2)
	const second = "nvidia-driver-daemonset-ubuntu22.04-amd64"
	b.Expect(b.drivers()).To(Equal(map[string]string{"nvidia-driver-daemonset": "app=nvidia-driver-daemonset", second: "app=" + second}))
	b.Expect(b.selectorOf("nvidia-container-toolkit-daemonset-crio")).To(Equal("app=nvidia-container-toolkit-daemonset-crio"))
	both := b.anchored()
	for of, uid := range first {
		b.Expect(both).To(HaveKeyWithValue(of, uid))
	}
	again()
	b.awaitReady(2)
	b.Expect(b.anchored()).To(Equal(both))

	b.Expect(b.client.Delete(t.Context(), b.node("gpu-00000"))).To(Succeed())
	b.Eventually(b.drivers).WithTimeout(time.Minute).Should(Equal(map[string]string{second: "app=" + second}))
	again()
	b.awaitReady(1)
	b.Expect(b.drivers()).To(Equal(map[string]string{second: "app=" + second}))
	for of, uid := range b.anchored() {
		b.Expect(both).To(HaveKeyWithValue(of, uid))
	}
}

// drivers are the selectors of the driver's DaemonSets, by name.
func (b *bed) drivers() map[string]string {
	found := map[string]string{}
	list := &appsv1.DaemonSetList{}
	b.Expect(b.client.List(b.t.Context(), list, client.InNamespace(namespace), client.MatchingLabels{labels.Operand: "driver"})).To(Succeed())
	for _, ds := range list.Items {
		found[ds.Name] = selectorText(&ds)
	}
	return found
}

func (b *bed) selectorOf(name string) string { return selectorText(b.daemonSet(name)) }

func selectorText(ds *appsv1.DaemonSet) string {
	var parts []string
	for key, value := range ds.Spec.Selector.MatchLabels {
		parts = append(parts, fmt.Sprintf("%s=%s", key, value))
	}
	return strings.Join(parts, ",")
}
