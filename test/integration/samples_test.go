package integration

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// sampleMachines are the nodes that each file of config/samples is for.
var sampleMachines = map[string][]simulator.NodeSpec{
	"clusterpolicy":                   {{}},
	"clusterpolicy-custom-metrics":    {{}},
	"clusterpolicy-gpudirect-rdma":    {{}},
	"clusterpolicy-gpudirect-storage": {{}},
	"clusterpolicy-host-driver":       {{DriverOnHost: true}},
	"clusterpolicy-host-toolkit":      {{ToolkitOnHost: true}},
	"clusterpolicy-mig-mixed":         {{Labels: map[string]string{labels.MIGCapable: "true"}}, {Labels: map[string]string{labels.MIGCapable: "false"}}},
	"clusterpolicy-node-pools": {
		{}, {Labels: map[string]string{"example.com/gpu-pool": "a100", labels.MIGCapable: "true"}}, {Labels: map[string]string{"example.com/gpu-pool": "v100"}},
		{Labels: map[string]string{"example.com/gpu-pool": "shared"}},
	},
	"clusterpolicy-openshift":          {coreOSMachine("4.18", newRelease)},
	"clusterpolicy-precompiled-driver": {{Kernel: "6.8.0-51-generic"}, {}},
	"clusterpolicy-private-registry":   {{}},
	"clusterpolicy-time-slicing":       {{}, {Labels: map[string]string{labels.DevicePluginConfig: "exclusive"}}},
}

// sampledSamples are those of the short tier: one with an object of its own, and one whose nodes bring a part of
// the stack.
var sampledSamples = []string{"clusterpolicy-host-driver", "clusterpolicy-mig-mixed"}

// TestSamples applies each file of config/samples as kubectl does, without an unknown field, and expects the
// nodes that it is for to become ready. TEST_FULL=1 tries all of them, otherwise a fixed sample.
func TestSamples(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{timing: simulator.DefaultTiming().Scale(0.1)})
	b.Expect(slices.Sorted(maps.Keys(sampleMachines))).To(Equal(b.sampleNames()), "each sample has nodes here")
	b.serveDriverToolkit(map[string]string{newRelease: newToolkit})
	names := sampledSamples
	if cluster.FullCampaigns() {
		names = b.sampleNames()
	}
	ready := 0
	for _, name := range names {
		if t.Run(name, func(t *testing.T) { b.in(t).sampleReady(name) }) {
			ready++
		}
	}
	t.Logf("samples ready %d/%d, of %d", ready, len(names), len(sampleMachines))
}

// sampleReady brings a sample to ready, and leaves the cluster empty again.
func (b *bed) sampleReady(name string) {
	machines := sampleMachines[name]
	for _, machine := range machines {
		added, err := b.sim.AddNode(b.t.Context(), machine)
		b.Expect(err).NotTo(HaveOccurred())
		defer b.remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: added}})
	}
	b.run()
	defer b.emptied()
	for _, object := range b.sample(name) {
		strict := &client.CreateOptions{Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}}
		b.Expect(b.client.Create(b.t.Context(), object, strict)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
		if object.GetKind() != v1.ClusterPolicyKind.Kind {
			defer b.remove(object)
		}
	}
	took := b.awaitReady(len(machines))
	b.t.Logf("%d nodes ready after %s", len(machines), took.Round(100*time.Millisecond))
	for _, operand := range b.policy().Status.Operands {
		b.Expect(operand.State).NotTo(BeElementOf(v1.OperandInvalid, v1.OperandWaiting), "%s: %s", operand.Name, operand.Message)
	}
}

// emptied ends the operator and takes the cluster back to before the installation. The Services would else wait
// for the garbage collector to hear of the policy's kind.
func (b *bed) emptied() {
	b.stop()
	b.Expect(b.client.DeleteAllOf(b.t.Context(), &corev1.Service{}, client.InNamespace(namespace), client.HasLabels{labels.Operand})).To(Succeed())
	b.empty()
}

func (b *bed) remove(object client.Object) {
	b.t.Helper()
	b.Expect(b.client.Delete(b.t.Context(), object)).To(Succeed())
}

// sampleNames are the files of config/samples that hold a policy.
func (b *bed) sampleNames() []string {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(repo, "config/samples/clusterpolicy*.yaml"))
	b.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// sample are the objects of a sample, in the order of the file.
func (b *bed) sample(name string) []*unstructured.Unstructured {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, "config/samples", name+".yaml"))
	b.Expect(err).NotTo(HaveOccurred())
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		b.Expect(yaml.UnmarshalStrict([]byte(document), &object.Object)).To(Succeed())
		objects = append(objects, object)
	}
	b.Expect(objects).NotTo(BeEmpty())
	return objects
}

// empty takes the cluster back to before the installation, without waiting for the garbage collector.
func (b *bed) empty() {
	b.t.Helper()
	ctx := b.t.Context()
	b.Expect(b.client.Delete(ctx, b.policy())).To(Succeed())
	owned := client.HasLabels{"nvidia.com/gpu-operator.operand"}
	for _, kind := range []client.Object{&appsv1.DaemonSet{}, &corev1.ConfigMap{}} {
		b.Expect(b.client.DeleteAllOf(ctx, kind, client.InNamespace(namespace), owned)).To(Succeed())
	}
	b.Expect(b.client.DeleteAllOf(ctx, &nodev1.RuntimeClass{}, owned)).To(Succeed())
	nodes := &corev1.NodeList{}
	b.Expect(b.client.List(ctx, nodes)).To(Succeed())
	for i := range nodes.Items {
		b.release(nodes.Items[i].Name)
	}
	b.Eventually(func(g Gomega) {
		pods := &corev1.PodList{}
		g.Expect(b.client.List(ctx, pods, client.InNamespace(namespace))).To(Succeed())
		g.Expect(pods.Items).To(BeEmpty())
		g.Expect(b.leftovers()).To(BeEmpty())
	}).WithTimeout(garbageTime).WithPolling(100 * time.Millisecond).Should(Succeed())
}

// release takes the operator's labels and condition off a node, as an administrator would.
func (b *bed) release(name string) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		node := b.node(name)
		for key := range node.Labels {
			if strings.HasPrefix(key, "nvidia.com/") {
				delete(node.Labels, key)
			}
		}
		g.Expect(b.client.Update(b.t.Context(), node)).To(Succeed())
		var others []corev1.NodeCondition
		for _, condition := range node.Status.Conditions {
			if condition.Type != gpuReady {
				others = append(others, condition)
			}
		}
		node.Status.Conditions = others
		g.Expect(b.client.Status().Update(b.t.Context(), node)).To(Succeed())
	}).WithPolling(50 * time.Millisecond).Should(Succeed())
}
