//go:build linux

package node_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/nfd"
	"github.com/clusterpolicy/gpu-operator/test/node"
)

// nodeDiscovery is the label app of the pods of node discovery, and its account.
const nodeDiscovery = "nvidia-node-discovery"

// ofBoth are labels that Node Feature Discovery and node discovery write, ofGFD one that either takes from the file of
// GPU Feature Discovery. ofNFD is only of Node Feature Discovery.
var ofBoth = []string{labels.DiscoveryPCIPresent, labels.DiscoveryKernel, labels.DiscoveryOSID}

const ofGFD, ofNFD = "nvidia.com/gpu.product", labels.DiscoveryPrefix + "cpu-model.family"

// installNFD installs Node Feature Discovery, as kubectl gpu migrate leaves that of NVIDIA's chart if kept is set.
func (b *env) installNFD(kept bool) {
	b.t.Helper()
	image := node.Image{Names: []string{nfd.Image}, Files: map[string]string{}, Env: []string{"PATH=/usr/bin"}}
	for _, program := range []string{"nfd-master", "nfd-worker", "nfd-gc"} {
		image.Files["usr/bin/"+program] = filepath.Join(os.Getenv(nfdVariable), program)
	}
	b.load(image)
	objects, err := nfd.InNamespace(namespace)
	b.Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		if kept && object.GetKind() != "CustomResourceDefinition" {
			object.SetAnnotations(map[string]string{
				"meta.helm.sh/release-name": "nvidia", "meta.helm.sh/release-namespace": namespace,
				"helm.sh/resource-policy": "keep",
			})
		}
	}
	b.installObjects(objects)
}

// awaitLabelsOfNFD waits until Node Feature Discovery lists labels of the node as its own.
func (b *env) awaitLabelsOfNFD(keys ...string) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		listed := labels.ListedByNFD(b.node(g).Annotations)
		for _, key := range keys {
			g.Expect(listed).To(HaveKey(key))
		}
	}, "1m", "100ms").Should(Succeed(), b.describe)
}

// ownLabels returns the labels that node discovery lists as its own.
func ownLabels(node *corev1.Node) []string {
	return strings.FieldsFunc(node.Annotations[labels.DiscoveredLabels], func(r rune) bool { return r == ',' })
}

// allLabels returns the labels that either discovery has written until now.
func allLabels(node *corev1.Node) []string {
	keys := slices.Collect(maps.Keys(labels.ListedByNFD(node.Annotations)))
	for key := range node.Labels {
		if labels.IsDiscoverable(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// followValues records the values of labels from now on, but for the time at which GPU Feature Discovery has started.
func (b *env) followValues(keys []string) (seen func() map[string][]string) {
	b.t.Helper()
	return b.follow(func(node *corev1.Node) map[string]string {
		found := map[string]string{}
		for _, key := range keys {
			value, there := node.Labels[key]
			if key != labels.FeatureTimestamp {
				found[key] = fmt.Sprintf("%q, %t", value, there)
			}
		}
		return found
	})
}

// checkReplacesDiscovery requires that Node Feature Discovery alone has labelled the node, on which all is ready.
func (b *env) checkReplacesDiscovery() {
	b.awaitLabelsOfNFD(append(ofBoth, ofGFD, ofNFD)...)
	b.Expect(b.podsOf(namespace, nodeDiscovery)).To(BeEmpty())
	b.Expect(b.node(b).Annotations).NotTo(HaveKey(labels.DiscoveredLabels))
}

// checkHandedOver lets node discovery run beside Node Feature Discovery, and then replace it. No label changes.
func (b *env) checkHandedOver() {
	seen := b.followValues(allLabels(b.node(b)))
	b.patchPolicy(map[string]any{"spec": map[string]any{"nodeDiscovery": nil}})
	b.awaitReady()
	b.awaitPod(nodeDiscovery)
	b.Expect(ownLabels(b.node(b))).NotTo(ContainElement(BeElementOf(append(ofBoth, ofGFD, ofNFD))))
	ended := b.startPlugin("migrate", "--finish", "--node-discovery", "--yes")
	// Node discovery would look at the node within 5 minutes.
	b.Eventually(func(g Gomega) {
		g.Expect(labels.ListedByNFD(b.node(g).Annotations)).NotTo(HaveKey(labels.DiscoveryKernel))
	}, "1m", "100ms").Should(Succeed(), b.describe)
	b.replace(nodeDiscovery)
	var printed string
	b.Eventually(ended, "2m").Should(Receive(&printed))
	b.Expect(printed).To(MatchRegexp("These labels stay on the nodes .*: .*" + ofNFD))
	b.Expect(ownLabels(b.node(b))).To(ContainElements(append(ofBoth, ofGFD)))
	for _, app := range []string{"nfd-master", "nfd-worker", "nfd-gc"} {
		b.Eventually(func() any { return b.podsOf(namespace, app) }, "1m", "100ms").Should(BeEmpty(), app)
	}
	b.Expect(seen()).To(HaveEach(HaveLen(1)))
}

// checkBesideDiscovery installs Node Feature Discovery on a node that node discovery has labelled, and starts all of
// their programs again. Those labels change hands, and none changes; Node Feature Discovery may drop others of its own
// while its worker is replaced. Neither writes again what the other has written, which would be each second. Each has
// one write for the labels that change hands, and Node Feature Discovery one or two for each program that starts.
func (b *env) checkBesideDiscovery() {
	const most = 5
	seen := b.followValues(ownLabels(b.node(b)))
	mark, err := b.cluster.Mark()
	b.Expect(err).NotTo(HaveOccurred())
	begin := time.Now()
	b.installNFD(false)
	b.awaitLabelsOfNFD(append(ofBoth, ofGFD, ofNFD)...)
	for _, app := range []string{nodeDiscovery, "nfd-worker", "nfd-master"} {
		b.replace(app)
		b.awaitPod(app)
	}
	b.awaitLabelsOfNFD(append(ofBoth, ofGFD, ofNFD)...)
	b.Expect(ownLabels(b.node(b))).NotTo(ContainElement(BeElementOf(append(ofBoth, ofGFD))))
	// nfd-worker looks at the node each second.
	b.Consistently(func(g Gomega) { g.Expect(seen()).To(HaveEach(HaveLen(1))) }, "20s", "500ms").Should(Succeed())
	calls, err := b.cluster.Since(mark)
	b.Expect(err).NotTo(HaveOccurred())
	for _, account := range []string{nodeDiscovery, nfd.Account} {
		writes := calls.By(cluster.ServiceAccountUser(namespace, account)).Of("nodes").Writes()
		b.t.Logf("writes of the Node by %s in %s:\n%s", account, since(begin), writes)
		b.Expect(len(writes)).To(And(BeNumerically(">", 0), BeNumerically("<=", most)), account)
	}
}

// awaitPod waits until the pod of an app is ready.
func (b *env) awaitPod(app string) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		pods, err := b.client.CoreV1().Pods(namespace).List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods.Items).To(HaveLen(1))
		g.Expect(pods.Items[0].Status.Conditions).To(ContainElement(And(
			HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))))
	}, "1m", "50ms").Should(Succeed(), b.describe)
}

// startPlugin starts kubectl gpu, as a user does, and returns what it will have printed, with the error if it fails.
func (b *env) startPlugin(args ...string) <-chan string {
	b.t.Helper()
	path := b.t.TempDir()
	command, err := cluster.PluginCommand(b.t.Context(), repository, os.Getenv(pluginVariable), path, args...)
	b.Expect(err).NotTo(HaveOccurred())
	command.Env = []string{"KUBECONFIG=" + b.cluster.Kubeconfig(), "HOME=" + path, "PATH=" + path}
	ended := make(chan string, 1)
	go func() {
		printed, err := command.CombinedOutput()
		if err != nil {
			printed = fmt.Appendf(printed, "%s: %v", command, err)
		}
		ended <- string(printed)
	}()
	return ended
}
