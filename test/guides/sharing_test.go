package guides

import (
	"maps"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// insufficient is the scheduler's message if a node has too few of a resource.
func insufficient(resource string) string { return "Insufficient " + resource }

// untolerated is its message about the taint of the node.
const untolerated = "untolerated taint"

func sixteenPodsRun(e *env) {
	e.expectAllocatable("slices", map[string]int64{wholeGPU: 16})
	pods := e.createPods(request{name: "sliced", resource: wholeGPU, on: "slices"}, 17)
	e.expectOneWaits(pods, insufficient(wholeGPU))
	e.Expect(e.node("slices").Labels).To(And(HaveKeyWithValue("nvidia.com/gpu.replicas", "4"),
		HaveKeyWithValue("nvidia.com/gpu.count", "4"), HaveKeyWithValue(productLabel, "NVIDIA-H100-80GB-HBM3-SHARED")))
	e.Eventually(func() *v1.NodeStatus { return e.verdict("slices") }).Should(HaveField("Offers",
		"nvidia.com/gpu: 4 x 4 shared = 16 (NVIDIA-H100-80GB-HBM3-SHARED)"))
	e.Expect(e.verdict("slices")).To(HaveField("GPUs", And(HaveField("Total", int32(4)), HaveField("Usable", int32(4)))))
}

// expectOneWaits waits until all pods but one run, and that one has no node. The scheduler decides which.
func (e *env) expectOneWaits(pods []*corev1.Pod, cause string) {
	e.t.Helper()
	var waiting *corev1.Pod
	e.Eventually(func(g Gomega) {
		var left []*corev1.Pod
		for _, pod := range pods {
			g.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(pod), pod)).To(Succeed())
			if pod.Status.Phase != corev1.PodRunning {
				left = append(left, pod)
			}
		}
		g.Expect(left).To(HaveLen(1))
		waiting = left[0]
	}).WithTimeout(readyTime).Should(Succeed())
	e.expectWaiting(waiting, cause)
}

// uids returns the UIDs of the operands' pods of a node, without those of these apps.
func (e *env) uids(node string, without ...string) map[string]types.UID {
	e.t.Helper()
	found := map[string]types.UID{}
	for app, pod := range e.operandPods(node) {
		found[app] = pod.UID
	}
	for _, app := range without {
		delete(found, app)
	}
	return found
}

func labelSelectsSharing(e *env) {
	before := e.uids("by-label")
	for _, step := range []struct {
		key     string
		devices int64
		product string
	}{
		{"time-sliced", 8, "NVIDIA-H100-80GB-HBM3-SHARED"}, {"exclusive", 2, "NVIDIA-H100-80GB-HBM3"},
		{"time-sliced", 8, "NVIDIA-H100-80GB-HBM3-SHARED"}, {"", 2, "NVIDIA-H100-80GB-HBM3"},
	} {
		e.label("by-label", configLabel, step.key)
		e.expectAllocatable("by-label", map[string]int64{wholeGPU: step.devices})
		e.Eventually(func() map[string]string { return e.node("by-label").Labels }).
			Should(HaveKeyWithValue(productLabel, step.product))
	}
	e.expectReady("by-label")
	e.Expect(e.uids("by-label")).To(Equal(before))
}

func unknownConfiguration(e *env) {
	e.label("no-such-key", configLabel, "missing")
	found := e.expectReported("no-such-key", "PluginConfigInvalid")
	e.Expect(found.Message).To(And(ContainSubstring(configLabel+"=missing"), ContainSubstring("time-sliced")))
	e.Expect(e.allocatable("no-such-key")).To(Equal(map[string]int64{wholeGPU: 2}))
	// The node is ready a minute after config-manager has ended for the last time.
	e.label("no-such-key", configLabel, "time-sliced")
	e.expectAllocatable("no-such-key", map[string]int64{wholeGPU: 8})
	e.expectOperandsBack("no-such-key")
}

func renamedShares(e *env) {
	e.expectAllocatable("renamed", map[string]int64{renamedGPU: 2})
	pods := e.createPods(request{name: "renamed", resource: renamedGPU, on: "renamed"}, 3)
	e.expectOneWaits(pods, insufficient(renamedGPU))
	e.Expect(e.node("renamed").Labels).To(HaveKeyWithValue(productLabel, "NVIDIA-H100-80GB-HBM3"))
	// The kubelet shows the earlier resource with nothing to give for some minutes.
	e.label("renamed", configLabel, "exclusive")
	e.expectAllocatable("renamed", map[string]int64{wholeGPU: 1})
	e.expectReady("renamed")
}

func mpsReplicas(e *env) {
	e.expectAllocatable("mps", map[string]int64{wholeGPU: 10})
	e.Eventually(func() map[string]*corev1.Pod { return e.operandPods("mps") }).
		Should(HaveKey("nvidia-device-plugin-mps-control-daemon"))
	e.expectRunning(e.createPods(request{name: "mps", resource: wholeGPU, on: "mps"}, 8)...)
	greedy := request{name: "mps-two", resource: wholeGPU, count: 2, on: "mps"}.pod()
	e.create(greedy)
	e.Eventually(func(g Gomega) {
		g.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(greedy), greedy)).To(Succeed())
		g.Expect(greedy.Status).To(And(HaveField("Phase", corev1.PodFailed),
			HaveField("Reason", "UnexpectedAdmissionError"), HaveField("Message", ContainSubstring("is 1, found 2"))))
	}).Should(Succeed())
	e.expectReady("mps")
	for _, spec := range nodes() {
		if spec.Name != "mps" && spec.Labels[configLabel] != "second" {
			e.Expect(e.operandPods(spec.Name)).NotTo(HaveKey("nvidia-device-plugin-mps-control-daemon"), spec.Name)
		}
	}
}

func taintedNode(e *env) {
	e.expectReady("tainted")
	refused := request{name: "intolerant", resource: wholeGPU, on: "tainted"}.pod()
	plain := request{name: "without-gpu", on: "tainted"}.pod()
	e.create(refused, plain)
	e.expectWaiting(refused, untolerated)
	e.expectWaiting(plain, untolerated)
	tolerant := request{name: "tolerant", resource: wholeGPU, on: "tainted", tolerations: []corev1.Toleration{
		{Key: wholeGPU, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	}}.pod()
	e.create(tolerant)
	e.expectRunning(tolerant)
}

func selectByProduct(e *env) {
	const product = "NVIDIA-A100-SXM4-80GB"
	whole := request{name: "whole", resource: wholeGPU, selector: map[string]string{productLabel: product}}.pod()
	e.create(whole)
	shared := e.createPods(request{
		name: "shared", resource: wholeGPU, selector: map[string]string{productLabel: product + "-SHARED"},
	}, 4)
	e.expectRunning(append(shared, whole)...)
	e.Expect(whole.Spec.NodeName).To(Equal("a100"))
	for _, pod := range shared {
		e.Expect(pod.Spec.NodeName).To(Equal("a100-shared"))
	}
	second := request{name: "second", resource: wholeGPU, selector: map[string]string{productLabel: product}}.pod()
	e.create(second)
	e.expectWaiting(second, insufficient(wholeGPU))
}

func quotaOfEight(e *env) {
	const team = "team"
	e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}})
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "gpus"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"requests." + wholeGPU: resource.MustParse("8"),
		}},
	}
	e.create(quota)
	e.Eventually(func(g Gomega) {
		g.Expect(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(quota), quota)).To(Succeed())
		g.Expect(quota.Status.Hard).To(HaveLen(1))
		account := &corev1.ServiceAccount{}
		g.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Namespace: team, Name: "default"}, account)).To(Succeed())
	}).Should(Succeed())
	// No node has the label, so that the pods take no GPU of another claim.
	nowhere := map[string]string{"example.com/none": "true"}
	of := request{name: "quota", namespace: team, resource: wholeGPU, count: 2, selector: nowhere}
	e.createPods(of, 4)
	of.name, of.count = "ninth", 1
	err := e.client.Create(e.t.Context(), of.pod())
	e.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	e.Expect(err).To(MatchError(ContainSubstring("exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, " +
		"used: requests.nvidia.com/gpu=8")))
}

// reading are the operands that read the configuration of the device plugin.
var reading = []string{"nvidia-device-plugin-daemonset", "gpu-feature-discovery"}

// expectOnlyReaders makes a change of the sharing of some nodes, and expects that it replaces only those of their pods
// that read it, and none of other nodes.
func (e *env) expectOnlyReaders(nodes []string, before, after map[string]int64, change func()) {
	e.t.Helper()
	others := map[string]map[string]types.UID{}
	for _, node := range []string{"slices", "a100-shared", "tainted"} {
		others[node] = e.uids(node)
	}
	here := map[string]map[string]types.UID{}
	for _, node := range nodes {
		e.expectAllocatable(node, before)
		here[node] = e.uids(node, reading...)
	}
	change()
	for node, pods := range here {
		e.expectAllocatable(node, after)
		e.expectReady(node)
		e.Expect(e.uids(node, reading...)).To(Equal(pods), node)
	}
	for node, pods := range others {
		e.Expect(e.uids(node)).To(Equal(pods), node)
	}
}

// reconfigure replaces a part of the configuration of a node pool.
func (e *env) reconfigure(pool, old, text string) {
	e.t.Helper()
	e.editKey(pool, "shares", old, text)
}

// editKey replaces a part of one configuration of a ConfigMap.
func (e *env) editKey(configMap, key, old, text string) {
	e.t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: configMap}}
	e.edit(object, func() {
		object.Data = maps.Clone(object.Data)
		object.Data[key] = strings.Replace(object.Data[key], old, text, 1)
	})
}

func editedKey(e *env) {
	const daemon = "nvidia-device-plugin-mps-control-daemon"
	ofFirst, ofSecond := []string{"first", "first-too"}, []string{"second", "second-too"}
	for _, node := range ofSecond {
		e.Eventually(func() map[string]*corev1.Pod { return e.operandPods(node) }).Should(HaveKey(daemon))
	}
	e.expectReplaced(ofFirst, ofSecond, reading, 3, func() { e.editKey(sharing, "first", "replicas: 2", "replicas: 3") })
	e.expectReplaced(ofSecond, ofFirst, append([]string{daemon}, reading...), 4, func() {
		e.editKey(sharing, "second", "replicas: 2", "replicas: 4")
	})
}

// expectReplaced makes a change, and expects that it replaces exactly the pods of these operands on these nodes, which
// then offer so many shares, and no pod of other nodes.
func (e *env) expectReplaced(nodes, others, operands []string, shares int64, change func()) {
	e.t.Helper()
	before := map[string]map[string]types.UID{}
	for _, node := range append(append([]string{"slices", "a100-shared", "tainted"}, nodes...), others...) {
		before[node] = e.uids(node)
	}
	change()
	for _, node := range nodes {
		e.expectAllocatable(node, map[string]int64{wholeGPU: shares})
		e.expectReady(node)
	}
	replaced := map[string]int{}
	for node, pods := range before {
		now := e.uids(node)
		for app, uid := range pods {
			if now[app] != uid {
				replaced[node]++
				e.Expect(operands).To(ContainElement(app), node)
			}
		}
	}
	want := map[string]int{}
	for _, node := range nodes {
		want[node] = len(operands)
	}
	e.Expect(replaced).To(Equal(want))
	e.t.Logf("replaced pods by node: %v", replaced)
}

func changedConfiguration(e *env) {
	e.expectOnlyReaders([]string{"edited", "edited-too"}, map[string]int64{wholeGPU: 2}, map[string]int64{wholeGPU: 3},
		func() { e.reconfigure(poolEdited, "replicas: 2", "replicas: 3") })
}

func typedSharing(e *env) {
	e.expectOnlyReaders([]string{"typed"}, map[string]int64{wholeGPU: 8}, map[string]int64{wholeGPU: 4}, func() {
		e.respec(func(spec *v1.ClusterPolicySpec) {
			for i := range spec.NodePools {
				if spec.NodePools[i].Name == poolTyped {
					spec.NodePools[i].Sharing.TimeSlicing.Replicas = 2
				}
			}
		})
	})
}

func brokenConfiguration(e *env) {
	e.expectAllocatable("broken", map[string]int64{wholeGPU: 2})
	before := e.uids("broken")
	e.reconfigure(poolBroken, "replicas: 2", "replicas: 1")
	e.Eventually(func() []v1.NodePoolStatus { return e.policy().Status.NodePools }).Should(ContainElement(And(
		HaveField("Name", poolBroken), HaveField("Reason", "PluginConfigInvalid"),
		HaveField("Message", ContainSubstring("replicas is 1: it must be a number from 2")))))
	e.Expect(e.uids("broken")).To(Equal(before))
	e.Expect(e.allocatable("broken")).To(Equal(map[string]int64{wholeGPU: 2}))
	e.reconfigure(poolBroken, "replicas: 1", "replicas: 3")
	e.expectAllocatable("broken", map[string]int64{wholeGPU: 3})
	e.expectReady("broken")
}
