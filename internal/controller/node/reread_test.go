package node

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

const plugin = "device-plugin"

// rereadEnv is an env with the nodes a, b, c and d, whose device plugins read a configuration from a ConfigMap, and a
// count of the pods that were created.
type rereadEnv struct {
	*env
	nodes   []string
	created int
}

func newRereadEnv(t *testing.T, maxUnavailable string) *rereadEnv {
	t.Helper()
	e := &rereadEnv{env: newEnv(t), nodes: []string{"a", "b", "c", "d"}}
	limit := intstr.Parse(maxUnavailable)
	e.spec.DevicePlugin = &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "plugin", Default: "all"}}
	e.spec.DaemonSets = &v1.DaemonSetsSpec{RollingUpdate: &v1.RollingUpdateSpec{MaxUnavailable: &limit}}
	e.Expect(e.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("gpu-operator"))).To(Succeed())
	for _, name := range e.nodes {
		if name != "a" {
			node := e.node()
			node.Name, node.ResourceVersion = name, ""
			e.Expect(e.client.Create(t.Context(), node)).To(Succeed())
		}
		for i := range e.reconciler.Catalogue {
			if o := &e.reconciler.Catalogue[i]; len(o.Workloads) > 0 || o.Discovers {
				e.createPod(string(o.Name), name, true)
			}
		}
	}
	e.configure("first")
	e.pass(0)
	return e
}

// configure publishes a Basis with this content of the configuration.
func (e *rereadEnv) configure(digest string) {
	e.t.Helper()
	in := operand.Input{
		Spec: effective.Of(e.spec), Namespace: "gpu-operator", OperatorImage: "example.com/gpu-operator:v1",
		Contents: map[operand.Reference]operand.Content{
			{Kind: operand.ConfigMap, Name: "plugin"}: {
				Digest: digest, Keys: []string{"all"}, KeyDigests: map[string]string{"all": digest},
			},
		},
	}
	e.fleet.Publish(
		fleet.Basis{Policy: &v1.ClusterPolicy{Spec: e.spec}, Decisions: plan.Decide(e.reconciler.Catalogue, in)},
		e.clock.Now(),
	)
}

// pass advances the clock and reconciles all nodes.
func (e *rereadEnv) pass(elapsed time.Duration) {
	e.t.Helper()
	e.clock.SetTime(e.clock.Now().Add(elapsed))
	for _, name := range e.nodes {
		_, err := e.reconciler.Reconcile(e.t.Context(), requestFor(name))
		e.Expect(err).NotTo(HaveOccurred())
	}
}

// prove lets the time pass for which the new pods of a node must have been ready.
func (e *rereadEnv) prove() {
	e.t.Helper()
	e.pass(time.Second)
	e.pass(10 * time.Second)
	e.pass(0) // The node may be reconciled after those that wait for it.
}

// restart replaces the operator by another one.
func (e *rereadEnv) restart(digest string) {
	e.t.Helper()
	e.fleet = fleet.New()
	options := e.reconciler.Options
	options.Fleet = e.fleet
	e.reconciler = New(options)
	e.Expect(e.reconciler.Hydrate(e.t.Context())).To(Succeed())
	e.configure(digest)
}

// createPod creates the pod of an operand on the node, which works or does not.
func (e *rereadEnv) createPod(name, node string, works bool) {
	e.t.Helper()
	e.created++
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name + "-" + node, Namespace: "gpu-operator", UID: types.UID(strconv.Itoa(e.created)),
			Labels: map[string]string{labels.Operand: name},
		},
		Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
		}},
	}
	if !works {
		crashes(&pod.Status)
	}
	e.Expect(e.client.Create(e.t.Context(), pod)).To(Succeed())
}

// breakPlugin replaces the pod of the device plugin on the node by one that does not work.
func (e *rereadEnv) breakPlugin(node string) {
	e.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: plugin + "-" + node}}
	e.Expect(e.client.Delete(e.t.Context(), pod)).To(Succeed())
	e.createPod(plugin, node, false)
	e.pass(time.Second)
}

// replaceBut creates the pods that were deleted, which work but for the device plugin of this node, and returns their
// nodes.
func (e *rereadEnv) replaceBut(broken string) []string {
	e.t.Helper()
	return e.replaceAs(func(name, node string) bool { return name != plugin || node != broken })
}

// replace creates the pods that were deleted, of which that of the device plugin works or does not, and returns their
// nodes.
func (e *rereadEnv) replace(works bool) []string {
	e.t.Helper()
	return e.replaceAs(func(name, _ string) bool { return works || name != plugin })
}

// replaceAs creates the pods that were deleted, which work or do not, and returns their nodes.
func (e *rereadEnv) replaceAs(works func(name, node string) bool) []string {
	e.t.Helper()
	var replaced []string
	for _, node := range slices.Sorted(slices.Values(e.nodes)) {
		for _, name := range []string{plugin, "gpu-feature-discovery", "mps-control-daemon"} {
			key := client.ObjectKey{Namespace: "gpu-operator", Name: name + "-" + node}
			if err := e.client.Get(e.t.Context(), key, &corev1.Pod{}); apierrors.IsNotFound(err) {
				e.createPod(name, node, works(name, node))
				replaced = append(replaced, node)
			}
		}
	}
	return slices.Compact(replaced)
}

// A configuration with which the device plugin does not work stops at the first node, for any time and also after a
// restart of the operator. The next edit reaches that node first, and the others once it works.
func TestBadPluginConfigStops(t *testing.T) {
	e := newRereadEnv(t, "1")
	e.configure("bad")
	e.pass(time.Second)
	e.Expect(e.replace(false)).To(Equal([]string{"a"}))
	for range 4 {
		e.pass(DefaultTiming().RereadPatience)
		e.Expect(e.replace(false)).To(BeEmpty(), "the device plugin of a does not work")
	}
	e.restart("bad")
	slices.Reverse(e.nodes) // The node that is down is assessed last.
	for range 2 {
		e.pass(DefaultTiming().RereadPatience)
		e.Expect(e.replace(false)).To(BeEmpty(), "after a restart")
	}

	e.configure("worse")
	e.pass(time.Second)
	e.Expect(e.replace(false)).To(Equal([]string{"a"}))
	for range 2 {
		e.pass(DefaultTiming().RereadPatience)
		e.Expect(e.replace(false)).To(BeEmpty(), "the second edit costs no second node")
	}

	e.configure("good")
	e.pass(time.Second)
	e.Expect(e.replace(true)).To(Equal([]string{"a"}))
	for _, next := range []string{"d", "c", "b"} {
		e.prove()
		e.Expect(e.replace(true)).To(Equal([]string{next}))
	}
	e.prove()
	e.Expect(e.replace(true)).To(BeEmpty(), "all have read it")
}

// A container without a readiness probe is ready until it crashes, and again between two crashes: only a node whose new
// pods have been ready for a time lets the next one begin.
func TestAPluginThatCrashesLaterStops(t *testing.T) {
	for name, crashAfter := range map[string][]time.Duration{
		"at once":                   {time.Second},
		"after some seconds":        {3 * time.Second, 3 * time.Second, 3 * time.Second},
		"just before it is trusted": {3 * time.Second, 3 * time.Second, 3 * time.Second, 900 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			e := newRereadEnv(t, "1")
			e.configure("bad")
			e.pass(time.Second)
			e.Expect(e.replace(true)).To(Equal([]string{"a"}))
			e.pass(0)
			for _, elapsed := range crashAfter {
				e.pass(elapsed)
				e.Expect(e.replace(true)).To(BeEmpty(), "the pods of a are ready for a short time only")
			}
			e.breakPlugin("a")
			for range 4 {
				e.pass(DefaultTiming().RereadPatience)
				e.Expect(e.replace(true)).To(BeEmpty(), "the device plugin of a does not work")
			}
		})
	}
}

// The next node begins 10 s after the pods of a node are ready, without an event: the node that is at it is due again.
// A pod that is not ready meanwhile begins that time again, and a node whose pods are not ready for long is dropped.
func TestTheNextNodeBeginsAfterTheProof(t *testing.T) {
	e := newRereadEnv(t, "1")
	e.configure("next")
	e.pass(time.Second)
	e.Expect(e.replace(true)).To(Equal([]string{"a"}))
	result, err := e.reconciler.Reconcile(e.t.Context(), requestFor("a"))
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", 10*time.Second)))
	e.pass(9 * time.Second)
	e.Expect(e.replace(true)).To(BeEmpty())
	e.pass(time.Second)
	e.Expect(e.replace(true)).To(Equal([]string{"b"}))
}

// The node at which a change of the configuration stops names that others wait for it, in its condition and in an
// Event, until it works.
func TestANodeNamesWhatItHolds(t *testing.T) {
	const held = "other nodes keep the earlier content of the configuration plugin/all"
	message := func(e *rereadEnv, name string) string {
		node := &corev1.Node{}
		e.Expect(e.client.Get(t.Context(), client.ObjectKey{Name: name}, node)).To(Succeed())
		return assess.GPUReadyCondition(node).Message
	}
	e := newRereadEnv(t, "1")
	e.configure("bad")
	e.pass(time.Second)
	e.Expect(e.replace(false)).To(Equal([]string{"a"}))
	e.pass(time.Second)
	e.pass(DefaultTiming().RereadPatience)
	e.Expect(message(e, "a")).To(And(ContainSubstring("CrashLoopBackOff"), ContainSubstring(held)))
	for _, waiting := range []string{"b", "c", "d"} {
		e.Expect(message(e, waiting)).NotTo(ContainSubstring(held))
	}
	events := &corev1.EventList{}
	e.Expect(e.client.List(t.Context(), events)).To(Succeed())
	e.Expect(events.Items).To(ContainElement(And(
		HaveField("InvolvedObject.Name", "a"), HaveField("Message", ContainSubstring(held)))))

	shown := &corev1.Node{}
	e.Expect(e.client.Get(t.Context(), client.ObjectKey{Name: "a"}, shown)).To(Succeed())
	e.restart("bad")
	for range 3 {
		e.pass(time.Second)
		restarted := &corev1.Node{}
		e.Expect(e.client.Get(t.Context(), client.ObjectKey{Name: "a"}, restarted)).To(Succeed())
		e.Expect(restarted.ResourceVersion).To(Equal(shown.ResourceVersion), "a restart of the operator writes nothing")
	}

	e.configure("good")
	e.pass(time.Second)
	e.Expect(e.replace(true)).To(Equal([]string{"a"}))
	e.pass(time.Second)
	e.pass(DefaultTiming().RereadPatience)
	e.Expect(message(e, "a")).NotTo(ContainSubstring(held))
}

// The node names what it holds also if only a pod fails that it can be ready without. After a start of the operator,
// before the other nodes are known, it does so only if it has a record of that.
func TestANodeThatIsReadyNamesWhatItHolds(t *testing.T) {
	const held = "other nodes keep the earlier content of the configuration plugin/all"
	e := newRereadEnv(t, "1")
	e.configure("bad")
	e.pass(time.Second)
	e.Expect(e.replaceAs(func(name, _ string) bool { return name == plugin })).To(Equal([]string{"a"}))
	e.pass(time.Second)
	e.pass(DefaultTiming().RereadPatience)
	e.Expect(e.reported()).To(Equal("True PluginConfigInvalid"))
	e.Expect(assess.GPUReadyCondition(e.node()).Message).To(ContainSubstring(held))
	e.Expect(e.node().Annotations).To(HaveKeyWithValue(labels.ReportRecord, `{"heldConfig":"plugin/all"}`))

	node := e.node()
	delete(node.Annotations, labels.ReportRecord)
	e.Expect(e.client.Update(t.Context(), node)).To(Succeed())
	e.restart("bad")
	_, err := e.reconciler.Reconcile(t.Context(), requestFor("a"))
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(e.fleet.Get("a").Latest.Message).NotTo(ContainSubstring(held))
	e.pass(time.Second)
	e.pass(time.Second)
	e.Expect(e.node().Annotations).To(HaveKeyWithValue(labels.ReportRecord, `{"heldConfig":"plugin/all"}`))
}

// A pod that never starts does not fail before the deadline of its node. Then that names what it holds, too.
func TestANodeWhosePodNeverStartsNamesWhatItHolds(t *testing.T) {
	const held = "other nodes keep the earlier content of the configuration plugin/all"
	e := newRereadEnv(t, "1")
	e.configure("bad")
	e.pass(time.Second)
	e.Expect(e.replace(true)).To(Equal([]string{"a"}))
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: "gpu-operator", Name: plugin + "-a"}
	e.Expect(e.client.Get(t.Context(), key, pod)).To(Succeed())
	pod.Status.Conditions = pod.Status.Conditions[:1]
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
	}}
	e.Expect(e.client.Status().Update(t.Context(), pod)).To(Succeed())
	for _, step := range []struct {
		elapsed time.Duration
		named   bool
	}{{time.Second, false}, {time.Second, false}, {24 * time.Hour, true}} {
		e.pass(step.elapsed)
		e.Expect(e.replace(true)).To(BeEmpty())
		message := assess.GPUReadyCondition(e.node()).Message
		e.Expect(strings.Contains(message, held)).To(Equal(step.named), message)
	}
}

// A node whose pods did not work with a configuration that all others have read, for a reason of its own, holds up no
// other, for any time and also after a restart of the operator. A bad configuration still stops at the next node.
func TestANodeDownBeforeTheEditHoldsNoOther(t *testing.T) {
	e := newRereadEnv(t, "1")
	e.breakPlugin("c")
	e.configure("next")
	e.pass(time.Second)
	e.pass(time.Second)
	replaced := e.replaceBut("c")
	e.Expect(replaced).To(ContainElement("c"), "it reads the configuration at once, as that may be what it needs")
	for range 4 {
		e.prove()
		replaced = append(replaced, e.replaceBut("c")...)
	}
	e.Expect(replaced).To(ConsistOf("a", "b", "c", "d"), "c is down, and has been")

	e.restart("next")
	e.pass(time.Second)
	e.configure("bad")
	e.pass(time.Second)
	e.pass(time.Second)
	e.Expect(e.replace(false)).To(ConsistOf("a", "c"), "after a restart")
	for range 4 {
		e.pass(DefaultTiming().RereadPatience)
		e.Expect(e.replace(false)).To(BeEmpty(), "the device plugin of a has worked before")
	}
}

// A node that was down and works again at the next edit counts like any other.
func TestANodeThatWorksAgainCounts(t *testing.T) {
	e := newRereadEnv(t, "1")
	e.breakPlugin("c")
	e.configure("next")
	e.pass(time.Second)
	e.pass(time.Second)
	e.Expect(e.replace(true)).To(ContainElement("c"))
	for range 4 {
		e.prove()
		e.replace(true)
	}
	e.prove()

	e.nodes = []string{"c", "a", "b", "d"}
	e.configure("bad")
	e.pass(time.Second)
	e.Expect(e.replace(false)).To(Equal([]string{"c"}))
	for range 4 {
		e.pass(DefaultTiming().RereadPatience)
		e.Expect(e.replace(false)).To(BeEmpty(), "c worked before")
	}
}

// The annotation of a node says what its pods have read, and whether they were down before.
func TestReadRecord(t *testing.T) {
	g := NewWithT(t)
	for annotation, want := range map[string]readRecord{
		"":                       {},
		"plugin/all 1a":          {source: "plugin/all", digest: "1a"},
		"plugin/all 1a was-down": {source: "plugin/all", digest: "1a", wasDown: true},
	} {
		s := &scope{node: &corev1.Node{}}
		s.node.Annotations = map[string]string{labels.PluginConfigRead: annotation}
		g.Expect(s.readRecord()).To(Equal(want))
		if annotation != "" {
			g.Expect(want.annotation()).To(HaveValue(Equal(annotation)))
		}
	}
}

// A node that is not reachable, or that is deleted, holds up no other for long.
func TestBadPluginConfigOfALostNode(t *testing.T) {
	e := newRereadEnv(t, "1")
	e.configure("next")
	e.pass(time.Second)
	e.Expect(e.replace(false)).To(Equal([]string{"a"}))
	e.updateNode(func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	})
	e.pass(DefaultTiming().RereadPatience)
	e.pass(time.Second)
	e.Expect(e.replace(false)).To(Equal([]string{"b"}))

	e.Expect(e.client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}})).To(Succeed())
	e.pass(DefaultTiming().RereadPatience)
	e.pass(time.Second)
	e.Expect(e.replace(true)).To(Equal([]string{"c"}))
}

// As many nodes as maxUnavailable allows replace their pods: of those with GPUs that use the configuration.
func TestRereadsAtATime(t *testing.T) {
	e := newRereadEnv(t, "50%")
	for _, name := range []string{"cpu-0", "cpu-1", "cpu-2", "cpu-3"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		e.Expect(e.client.Create(t.Context(), node)).To(Succeed())
	}
	own := &corev1.Node{}
	e.Expect(e.client.Get(t.Context(), client.ObjectKey{Name: "d"}, own)).To(Succeed())
	own.Labels[labels.DevicePluginConfig] = "other"
	e.Expect(e.client.Update(t.Context(), own)).To(Succeed())
	e.nodes = append(e.nodes, "cpu-0", "cpu-1", "cpu-2", "cpu-3")
	e.pass(time.Second)

	e.configure("next")
	e.pass(time.Second)
	e.nodes = e.nodes[:4]
	e.Expect(e.replace(true)).To(Equal([]string{"a", "b"}), "2 of 3")
}

// All nodes that wait for their turn ask about the others again and again: an answer must not cost a look at each.
func TestATurnCostsTheSameWithManyNodes(t *testing.T) {
	const source, most = "plugin/all", 1 << 10
	f := fleet.New()
	for i := range 2000 {
		f.Set(&fleet.Entry{
			Facts: nodeinfo.Facts{Name: "node-" + strconv.Itoa(i), HasGPU: true}, BasisVersion: 1,
			Planned: &fleet.PlannedNode{NodePlan: plan.NodePlan{PluginConfigRead: operand.NodePluginConfig{Source: source}}},
		})
	}
	s := &scope{
		Reconciler: New(Options{Fleet: f}), node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}},
		basis: &fleet.Basis{Decisions: plan.Decide(nil, operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})})},
	}
	s.entry.Facts = f.Get("node-0").Facts
	g := NewWithT(t)
	turn, known := s.rereadTurn(source)
	g.Expect(known).To(BeTrue())
	g.Expect(turn.nodes).To(Equal(2000))
	const turns = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range turns {
		_, known = s.rereadTurn(source)
	}
	runtime.ReadMemStats(&after)
	g.Expect(known).To(BeTrue())
	g.Expect((after.TotalAlloc-before.TotalAlloc)/turns).To(BeNumerically("<", most), "bytes of a turn")
}
