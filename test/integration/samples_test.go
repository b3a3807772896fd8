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
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// sampleMachines are the nodes for each file of config/samples.
var sampleMachines = map[string][]simulator.NodeSpec{
	"clusterpolicy":                   {{}},
	"clusterpolicy-custom-metrics":    {{}},
	"clusterpolicy-gpudirect-rdma":    {{}},
	"clusterpolicy-gpudirect-storage": {{}},
	"clusterpolicy-host-driver":       {{DriverOnHost: true}},
	"clusterpolicy-host-toolkit":      {{ToolkitOnHost: true}},
	"clusterpolicy-mig-mixed": {
		{Labels: map[string]string{labels.MIGCapable: "true"}}, {Labels: map[string]string{labels.MIGCapable: "false"}},
	},
	"clusterpolicy-node-pools": {
		{}, {Labels: map[string]string{"example.com/gpu-pool": "a100", labels.MIGCapable: "true"}}, {
			Labels: map[string]string{"example.com/gpu-pool": "v100"},
		},
		{Labels: map[string]string{"example.com/gpu-pool": "shared"}},
	},
	"clusterpolicy-nvidiadrivers":      {{}, {Labels: map[string]string{"example.com/gpu-pool": "a100"}}},
	"clusterpolicy-openshift":          {coreOSMachine("4.18", newRelease)},
	"clusterpolicy-precompiled-driver": {{Kernel: "6.8.0-51-generic"}, {}},
	"clusterpolicy-private-registry":   {{}},
	"clusterpolicy-time-slicing":       {{}, {Labels: map[string]string{labels.DevicePluginConfig: "exclusive"}}},
}

// TestSamples applies each file of config/samples as kubectl does, with strict field validation, and expects its
// nodes to become ready. TEST_FULL=1 tries all of them, otherwise three.
func TestSamples(t *testing.T) {
	if cluster.Sampled() {
		t.Skip("make test leaves this out; each run of make ci tries other samples")
	}
	t.Parallel()
	e := newEnv(t, envOptions{timing: simulator.DefaultTiming().Scale(0.1)})
	e.Expect(slices.Sorted(maps.Keys(sampleMachines))).To(Equal(e.sampleNames()), "each sample has nodes here")
	e.serveDriverToolkit(map[string]string{newRelease: newToolkit})
	names := e.sampleNames()
	if !cluster.FullCampaigns() {
		names = chance.Sample(t, "samples", names, 3, chance.Itself)
	}
	ready := 0
	for _, name := range names {
		if t.Run(name, func(t *testing.T) { e.in(t).sampleReady(name) }) {
			ready++
		}
	}
	t.Logf("samples ready %d/%d, of %d", ready, len(names), len(sampleMachines))
}

// sampleReady applies a sample, waits until it is ready, and empties the cluster.
func (e *env) sampleReady(name string) {
	machines := sampleMachines[name]
	for _, machine := range machines {
		added, err := e.sim.AddNode(e.t.Context(), machine)
		e.Expect(err).NotTo(HaveOccurred())
		defer e.remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: added}})
	}
	e.run()
	defer e.emptied()
	for _, object := range e.sample(name) {
		strict := client.FieldValidation(metav1.FieldValidationStrict)
		e.Expect(e.client.Create(e.t.Context(), object, strict)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
		if object.GetKind() != v1.ClusterPolicyKind.Kind {
			defer e.remove(object)
		}
	}
	took := e.awaitReady(len(machines))
	e.t.Logf("%d nodes ready after %s", len(machines), took.Round(100*time.Millisecond))
	for _, operand := range e.policy().Status.Operands {
		e.Expect(operand.State).NotTo(BeElementOf(v1.OperandInvalid, v1.OperandWaiting), "%s: %s", operand.Name,
			operand.Message)
	}
}

// emptied ends the operator and resets the cluster to before the installation. Otherwise the Services would wait
// until the garbage collector discovers the policy's kind.
func (e *env) emptied() {
	e.stop()
	e.Expect(e.client.DeleteAllOf(e.t.Context(), &corev1.Service{}, client.InNamespace(namespace),
		client.HasLabels{labels.Operand})).To(Succeed())
	e.empty()
}

func (e *env) remove(object client.Object) {
	e.t.Helper()
	e.Expect(e.client.Delete(e.t.Context(), object)).To(Succeed())
}

// sampleNames returns the files of config/samples with a policy.
func (e *env) sampleNames() []string {
	e.t.Helper()
	files, err := filepath.Glob(filepath.Join(repo, "config/samples/clusterpolicy*.yaml"))
	e.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// sample returns the objects of a sample, in the order of the file.
func (e *env) sample(name string) []*unstructured.Unstructured {
	e.t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, "config/samples", name+".yaml"))
	e.Expect(err).NotTo(HaveOccurred())
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		e.Expect(yaml.UnmarshalStrict([]byte(document), &object.Object)).To(Succeed())
		objects = append(objects, object)
	}
	e.Expect(objects).NotTo(BeEmpty())
	return objects
}

// empty resets the cluster to before the installation, without waiting for the garbage collector.
func (e *env) empty() {
	e.t.Helper()
	ctx := e.t.Context()
	e.Expect(e.client.Delete(ctx, e.policy())).To(Succeed())
	e.dropFinalizers()
	owned := client.HasLabels{"nvidia.com/gpu-operator.operand"}
	for _, kind := range []client.Object{&appsv1.DaemonSet{}, &corev1.ConfigMap{}} {
		e.Expect(e.client.DeleteAllOf(ctx, kind, client.InNamespace(namespace), owned)).To(Succeed())
	}
	e.Expect(e.client.DeleteAllOf(ctx, &nodev1.RuntimeClass{}, owned)).To(Succeed())
	nodes := &corev1.NodeList{}
	e.Expect(e.client.List(ctx, nodes)).To(Succeed())
	for i := range nodes.Items {
		e.release(nodes.Items[i].Name)
	}
	e.Eventually(func(g Gomega) {
		pods := &corev1.PodList{}
		g.Expect(e.client.List(ctx, pods, client.InNamespace(namespace))).To(Succeed())
		g.Expect(pods.Items).To(BeEmpty())
		g.Expect(e.leftovers()).To(BeEmpty())
	}).WithTimeout(garbageTime).WithPolling(100 * time.Millisecond).Should(Succeed())
}

// release removes the operator's labels and condition from a node, as an administrator would.
func (e *env) release(name string) {
	e.t.Helper()
	e.Eventually(func(g Gomega) {
		node := e.node(name)
		for key := range node.Labels {
			if strings.HasPrefix(key, "nvidia.com/") {
				delete(node.Labels, key)
			}
		}
		g.Expect(e.client.Update(e.t.Context(), node)).To(Succeed())
		var others []corev1.NodeCondition
		for _, condition := range node.Status.Conditions {
			if condition.Type != gpuReady {
				others = append(others, condition)
			}
		}
		node.Status.Conditions = others
		g.Expect(e.client.Status().Update(e.t.Context(), node)).To(Succeed())
	}).WithPolling(50 * time.Millisecond).Should(Succeed())
}
