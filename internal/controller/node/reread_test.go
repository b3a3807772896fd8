package node

import (
	"context"
	"errors"
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
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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

// What nodes that replace pods know of each other, without a cluster.
func TestTurnsOfRereads(t *testing.T) {
	g, r := NewWithT(t), newRereads()
	pods := func(uids ...string) assess.Pods {
		found := assess.Pods{}
		for i, uid := range uids {
			pod := readyPod()
			pod.UID = types.UID(uid)
			found[operand.Name(strconv.Itoa(i))] = pod
		}
		return found
	}
	next := func(source, digest string) reread {
		return reread{config: operand.NodePluginConfig{Source: source, Digest: digest}, until: now.Add(time.Minute)}
	}
	turn := rereadTurn{limit: 1}
	begin := func(node string, next reread, pods assess.Pods, turn rereadTurn, wait time.Duration) (assess.Pods, bool) {
		return r.begin(node, next, pods, turn, now.Add(wait))
	}
	old := pods("1", "2")
	left, may := begin("a", next("s", "d"), old, turn, 0)
	g.Expect(may).To(BeTrue())
	g.Expect(left).To(Equal(old))
	left, may = begin("a", next("s", "d"), pods("3", "2"), turn, 0)
	g.Expect(may).To(BeTrue(), "it goes on")
	g.Expect(left).To(Equal(assess.Pods{"1": old["1"]}))
	left, may = begin("a", next("s", "e"), old, turn, 0)
	g.Expect(may).To(BeTrue(), "it has its turn already")
	g.Expect(left).To(Equal(old), "of another content")

	_, may = begin("b", next("s", "d"), old, turn, 0)
	g.Expect(may).To(BeFalse(), "a is at it")
	_, may = begin("b", next("t", "d"), old, turn, 0)
	g.Expect(may).To(BeTrue(), "with another configuration")
	_, may = begin("c", next("s", "d"), nil, turn, 0)
	g.Expect(may).To(BeTrue(), "without pods")
	_, may = begin("d", next("s", "d"), old, rereadTurn{limit: 1, anyway: true}, 0)
	g.Expect(may).To(BeTrue(), "as it is down")
	g.Expect(r.others("s", []string{"x", "a"})).To(Equal([]string{"a", "c", "d"}), "the first three, each once")
	g.Expect(r.others("t", nil)).To(Equal([]string{"b"}))
	down := next("s", "d")
	down.wasDown = true
	_, may = begin("e", down, old, rereadTurn{limit: 4}, 0)
	g.Expect(may).To(BeTrue(), "three are at it")
	_, may = begin("f", next("s", "d"), old, rereadTurn{limit: 4}, 0)
	g.Expect(may).To(BeTrue(), "the last one does not count")
	_, may = begin("g", next("s", "d"), old, rereadTurn{limit: 4}, 0)
	g.Expect(may).To(BeFalse())
	_, may = begin("g", next("s", "d"), old, turn, time.Minute)
	g.Expect(may).To(BeTrue(), "all others are dropped")
	g.Expect(r.others("s", nil)).To(Equal([]string{"g"}))
}

// A turn ends when all new pods have been ready for the time of proof.
func TestEndOfAReread(t *testing.T) {
	g, r := NewWithT(t), newRereads()
	const proof = 10 * time.Second
	pod, fails := readyPod(), readyPod()
	pod.UID, fails.UID, fails.Status.Conditions[0].Status = "2", "2", corev1.ConditionFalse
	at := func(elapsed time.Duration, pods assess.Pods) time.Duration {
		return r.end("a", pods, now.Add(elapsed), proof)
	}
	g.Expect(at(0, nil)).To(BeZero(), "it has not begun")
	r.nodes["a"] = reread{replaced: map[operand.Name]types.UID{"x": "1"}}
	g.Expect(at(0, nil)).To(BeZero(), "there is no pod")
	g.Expect(at(0, assess.Pods{"x": pod})).To(Equal(proof))
	g.Expect(at(time.Second, assess.Pods{"x": fails})).To(BeZero(), "it is not ready")
	g.Expect(at(2*time.Second, assess.Pods{"x": pod})).To(Equal(proof), "it begins again")
	g.Expect(at(11*time.Second, assess.Pods{"x": pod})).To(Equal(time.Second))
	old := readyPod()
	old.UID = "1"
	g.Expect(at(12*time.Second, assess.Pods{"x": old})).To(BeZero(), "the pod is the old one")
	g.Expect(at(12*time.Second, assess.Pods{"x": pod})).To(Equal(proof))
	g.Expect(r.nodes).To(HaveLen(1))
	g.Expect(at(22*time.Second, assess.Pods{"x": pod})).To(BeZero())
	g.Expect(r.nodes).To(BeEmpty())
	r.nodes["a"] = reread{}
	g.Expect(at(0, nil)).To(BeZero(), "nothing was replaced")
	g.Expect(r.nodes).To(BeEmpty())
}

// What decides whether the pods of a node read a configuration again, and what is recorded of it.
func TestRereadDecisions(t *testing.T) {
	e := newRereadEnv(t, "1")
	config := operand.NodePluginConfig{Source: "plugin/all", Digest: "next"}
	broken, unread, other := config, config, config
	broken.Broken, unread.Digest, other.Source = true, "", "plugin/other"
	onDelete := v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{UpdateStrategy: "OnDelete"}}
	for name, test := range map[string]struct {
		config     operand.NodePluginConfig
		spec       v1.ClusterPolicySpec
		annotation string
		must       bool
		// noted is the value of the annotation that is added, and removed that there is none any more.
		noted   string
		removed bool
	}{
		"another content":            {config: config, annotation: "plugin/all first", must: true},
		"the same":                   {config: config, annotation: "plugin/all next"},
		"a broken one":               {config: broken, annotation: "plugin/all first"},
		"one that was not read":      {config: unread, annotation: "plugin/all first"},
		"another one":                {config: other, annotation: "plugin/all first", noted: "plugin/other next"},
		"another one, not read":      {config: operand.NodePluginConfig{Source: "x"}, annotation: "plugin/all first"},
		"the first":                  {config: config, noted: "plugin/all next"},
		"with the strategy OnDelete": {config: config, spec: onDelete, annotation: "plugin/all first"},
		"none any more":              {annotation: "plugin/all first", removed: true},
		"none":                       {},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := e.scope(func(s *scope) {
				s.node.Annotations = map[string]string{labels.PluginConfigRead: test.annotation}
				if test.annotation == "" {
					s.node.Annotations = nil
				}
				s.plans(plan.NodePlan{PluginConfigRead: test.config, Spec: effective.Of(test.spec)})
			})
			g.Expect(s.mustReread(test.config, s.readRecord())).To(Equal(test.must))
			notes, want := map[string]*string{}, map[string]*string{}
			if s.recordPluginConfig(notes); test.noted != "" {
				want[labels.PluginConfigRead] = &test.noted
			}
			if test.removed {
				want[labels.PluginConfigRead] = nil
			}
			g.Expect(notes).To(Equal(want))
		})
	}
	g := NewWithT(t)
	for digest, all := range map[string]bool{"x": true, "y": false} {
		g.Expect(rereadTurn{nodes: 4, read: map[string]int{"x": 1, "z": 2}}.haveRead(digest, "z")).To(Equal(all))
	}
	g.Expect(rereadTurn{nodes: 1}.haveRead("x", "y")).To(BeFalse(), "there is no other node")
}

// Pods are down for the configuration if what comes before them works.
func TestReadersThatAreDown(t *testing.T) {
	e := newEnv(t)
	failed, starting := readyPod(), readyPod()
	failed.Status.Phase, starting.Status.Conditions[0].Status = corev1.PodFailed, corev1.ConditionFalse
	for name, test := range map[string]struct {
		stage       v1.Stage
		kubelet     corev1.ConditionStatus
		pod         *corev1.Pod
		down, fails bool
	}{
		"ready":           {v1.StageDevicePlugin, corev1.ConditionTrue, readyPod(), false, false},
		"starting":        {v1.StageDevicePlugin, corev1.ConditionTrue, starting, true, false},
		"failed":          {v1.StageValidated, corev1.ConditionTrue, failed, true, true},
		"waiting":         {v1.StageToolkit, corev1.ConditionTrue, failed, false, true},
		"without kubelet": {v1.StageDevicePlugin, corev1.ConditionUnknown, failed, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			g, pods := NewWithT(t), assess.Pods{"ready": readyPod(), "x": test.pod}
			s := e.scope(func(s *scope) {
				s.entry.Latest.Stage, s.node.Status.Conditions = test.stage, readyCondition(test.kubelet, now)
			})
			g.Expect(s.areDown(pods)).To(Equal(test.down))
			g.Expect(s.fails(pods)).To(Equal(test.fails))
		})
	}
}

// A node holds its configuration back from others that have not read it, if as many are down as may be. After a start
// of the operator its record says so.
func TestHeldConfigOfANode(t *testing.T) {
	const source = "plugin/all"
	read := fleet.Entry{ReadDigest: "d", BasisVersion: 1}
	read.Facts = nodeinfo.Facts{HasGPU: true}
	read.Planned = &fleet.PlannedNode{NodePlan: plan.NodePlan{PluginConfigRead: operand.NodePluginConfig{Source: source}}}
	unread, down := read, read
	unread.ReadDigest, down.ReadersDown = "c", true
	unassessed := unread
	unassessed.BasisVersion = 0
	works := readRecord{source: source, digest: "d"}
	wasDown, another := works, works
	wasDown.wasDown, another.digest = true, "c"
	for name, test := range map[string]struct {
		others        []fleet.Entry
		record        readRecord
		works, starts bool
		without       bool
		limit         string
		recorded      string
		want          string
		recheck       time.Duration
	}{
		"others wait":              {others: []fleet.Entry{unread, read}, record: works, want: source},
		"no other":                 {record: works},
		"none waits":               {others: []fleet.Entry{read, read}, record: works},
		"it works":                 {others: []fleet.Entry{unread}, record: works, works: true},
		"no configuration":         {others: []fleet.Entry{unread}, record: works, without: true},
		"it has not read it":       {others: []fleet.Entry{unread}, record: another},
		"it was down before":       {others: []fleet.Entry{unread}, record: wasDown},
		"two may be down":          {others: []fleet.Entry{unread, read}, record: works, limit: "2"},
		"two may be down, and are": {others: []fleet.Entry{unread, down}, record: works, limit: "2", want: source},
		"some are not assessed":    {others: []fleet.Entry{unassessed}, record: works},
		"some are not assessed, with a record": {
			others: []fleet.Entry{unassessed}, record: works, recorded: source, want: source, recheck: time.Second,
		},
		"a start": {others: []fleet.Entry{unread}, record: works, works: true, starts: true},
		"a start, with a record": {
			others: []fleet.Entry{unread}, record: works, works: true, starts: true, recorded: source, want: source,
			recheck: time.Second,
		},
		"a start, with another record": {others: []fleet.Entry{unread}, record: works, starts: true, recorded: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{
				Reconciler: New(Options{Fleet: fleet.New(), Timing: DefaultTiming()}),
				node:       &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, basis: &fleet.Basis{},
			}
			for i, other := range test.others {
				other.Facts.Name = strconv.Itoa(i)
				s.Fleet.Set(&other)
			}
			s.node.Annotations = map[string]string{labels.PluginConfigRead: *test.record.annotation()}
			if test.recorded != "" {
				s.node.Annotations[labels.ReportRecord] = `{"heldConfig":"` + test.recorded + `"}`
			}
			s.entry.ReadersDown = !test.works
			if !test.starts {
				s.entry.Latest.Stage = v1.StageDevicePlugin
			}
			planned := plan.NodePlan{PluginConfigRead: operand.NodePluginConfig{Source: source, Digest: "d"}}
			if test.without {
				planned.PluginConfigRead = operand.NodePluginConfig{}
			}
			spec := v1.ClusterPolicySpec{}
			if test.limit != "" {
				limit := intstr.Parse(test.limit)
				spec.DaemonSets = &v1.DaemonSetsSpec{RollingUpdate: &v1.RollingUpdateSpec{MaxUnavailable: &limit}}
			}
			planned.Spec = effective.Of(spec)
			held, recheck := s.plans(planned).heldConfig()
			g.Expect(held).To(Equal(test.want))
			g.Expect(recheck).To(Equal(test.recheck))
		})
	}
}

// Nothing is replaced during a back-off, no pod twice, and each call that fails is an error.
func TestRereadsThatFail(t *testing.T) {
	refused := errors.New("refused")
	reads := func(e *rereadEnv) string { return e.node().Annotations[labels.PluginConfigRead] }
	e := newRereadEnv(t, "1")
	e.configure("next")
	entry := *e.fleet.Get("a")
	entry.Writes.RetryAt = now.Add(time.Minute)
	e.fleet.Set(&entry)
	e.Expect(e.reconcileAfter(0)).To(Equal(time.Minute))
	e.Expect(e.replace(true)).To(BeEmpty())
	e.Expect(reads(e)).To(Equal("plugin/all first"))

	e.fails = map[string]error{"delete": refused}
	_, err := e.reconcileAfter(time.Minute)
	e.Expect(err).To(MatchError(MatchRegexp(`^deleting pod \S+-a: refused$`)))
	e.Expect(reads(e)).To(Equal("plugin/all first"))
	e.fails, e.patchErr = nil, refused
	_, err = e.reconcileAfter(time.Minute)
	e.Expect(err).To(MatchError("patching labels of node a: refused"))
	e.Expect(e.fleet.Get("a").ReadDigest).To(Equal("first"))
	e.Expect(e.replace(true)).To(Equal([]string{"a"}))

	// Pods that end already are not deleted again.
	e = newRereadEnv(t, "1")
	pods := &corev1.PodList{}
	e.Expect(e.client.List(t.Context(), pods)).To(Succeed())
	for i := range pods.Items {
		pods.Items[i].Finalizers = []string{"example.com/x"}
		e.Expect(e.client.Update(t.Context(), &pods.Items[i])).To(Succeed())
		e.Expect(e.client.Delete(t.Context(), &pods.Items[i])).To(Succeed())
	}
	e.configure("next")
	e.fails = map[string]error{"delete": refused}
	_, err = e.reconcileAfter(time.Second)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(reads(e)).To(Equal("plugin/all next"))
	e.Expect(e.fleet.Get("a").ReadDigest).To(Equal("next"))
}

// A pod that is gone, or in whose place there is another, is deleted. No other one is.
func TestDeletingAPod(t *testing.T) {
	pods := corev1.Resource("pods")
	for want, answer := range map[string]error{
		"": nil, "gone": apierrors.NewNotFound(pods, "x"), "another": apierrors.NewConflict(pods, "x", errors.New("uid")),
		"deleting pod x: refused": errors.New("refused"),
	} {
		g := NewWithT(t)
		c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Delete: func(_ context.Context, _ client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				g.Expect(client.ObjectKeyFromObject(object)).To(Equal(client.ObjectKey{Namespace: "n", Name: "x"}))
				g.Expect(options).To(ConsistOf(client.Preconditions{UID: new(types.UID("u"))}))
				return answer
			},
		}).Build()
		s := &scope{Reconciler: &Reconciler{Options: Options{Client: c, Timing: DefaultTiming()}}}
		err := s.deletePod(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "x", UID: "u"}})
		if strings.HasPrefix(want, "deleting") {
			g.Expect(err).To(MatchError(want))
		} else {
			g.Expect(err).NotTo(HaveOccurred())
		}
	}
}
