package controller_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/health/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
	"github.com/clusterpolicy/gpu-operator/test/chance"
)

// upgradedPods are the operands whose pods the plan of a driver upgrade depends on, and pods that pull images.
var upgradedPods = []string{
	"driver", "container-toolkit", "operator-validator", "device-plugin", "mps-control-daemon", "gpu-feature-discovery",
	"dcgm", "dcgm-exporter", "mig-manager",
}

// watched is an operator with one node, as it is before one object changes.
type watched struct {
	*operator
	name string
	node *corev1.Node
	pods []*corev1.Pod
	// entry is that of the node, and now what is planned for it.
	entry *fleet.Entry
	now   planned
	// node, upgrade and health are the predicates of the three controllers.
	predicates map[string]predicate.Predicate
}

// planned is what each controller plans from, or does, for a node.
type planned struct {
	Reconciled reconciled
	Upgrade    upgrade.Node
	DaemonSet  string
	Health     healthaction.Node
	// again is when the node is reconciled again without an event; 0 for never.
	again time.Duration
}

// reconciled is what a reconcile of the node leaves, but for versions.
type reconciled struct {
	Entry  fleet.Entry
	Writes map[string]int
}

// watch returns what is watched once the scene is set.
func watch(prepare func(*operator, string)) *watched {
	o := newOperator()
	name := o.addNodes(0, 2)[1]
	o.makeReady(o.fleet.Names())
	o.makeReady([]string{name})
	prepare(o, name)
	w := &watched{operator: o, name: name, node: &corev1.Node{}}
	for range 3 {
		o.reconcileNode(name)
	}
	must(o.Get(context.Background(), client.ObjectKey{Name: name}, w.node))
	w.node = w.node.DeepCopy()
	pods := o.podsOn(name)
	for i := range pods.Items {
		w.pods = append(w.pods, pods.Items[i].DeepCopy())
	}
	w.entry = o.fleet.Get(name)
	w.predicates = map[string]predicate.Predicate{
		"node pod": cachefilter.PodChanges(), "health node": cachefilter.HealthNodeChanges(),
		"node node": cachefilter.NodeChanges(
			func(label string) bool { return o.fleet.Basis().Selects(label) },
			func(now *corev1.Node) bool {
				was, is := assess.GPUReadyCondition(w.node), assess.GPUReadyCondition(now)
				return was != nil && is != nil && was.Status == is.Status && was.Reason == is.Reason &&
					was.Message == is.Message && assess.RecordOf(w.node).IsOf(now)
			}),
		"upgrade node": cachefilter.UpgradeNodeChanges(),
		"upgrade pod": cachefilter.UpgradePodChanges(func(operand string) bool {
			return slices.Contains(upgradedPods, operand)
		}),
	}
	w.restore()
	w.now = w.plan(true)
	return w
}

// restore puts the node, its pods and its entry back.
func (w *watched) restore() {
	w.put(w.node.DeepCopy())
	for _, pod := range w.pods {
		w.put(pod.DeepCopy())
	}
	entry := *w.entry
	w.fleet.Set(&entry)
	w.assessed()
	w.acting()
}

func (w *watched) assessed() bool { return drained(w.fleet.Assessed()) }
func (w *watched) acting() bool   { return drained(w.fleet.HealthActionsDue()) }

func drained(events <-chan event.GenericEvent) bool {
	select {
	case <-events:
		return true
	default:
		return false
	}
}

// plan returns what is planned for the node, after a reconcile of it or without.
func (w *watched) plan(reconciles bool) planned {
	var p planned
	seen := &corev1.Node{}
	must(w.Get(context.Background(), client.ObjectKey{Name: w.name}, seen))
	seen = seen.DeepCopy()
	before := maps.Clone(w.writes)
	if reconciles {
		p.again = w.reconcileNode(w.name).RequeueAfter
		p.Reconciled.Writes = map[string]int{}
		for what, count := range w.writes {
			if more := count - before[what]; more > 0 {
				p.Reconciled.Writes[what] = more
			}
		}
	}
	entry := w.fleet.Get(w.name)
	pods, err := observe.PodsOnNode(context.Background(), w, namespace, w.name)
	must(err)
	basis := w.fleet.Basis()
	upgraded, health := &observe.UpgradeFacts{Node: seen, Pods: pods, Now: w.clock.Now()}, &observe.HealthFacts{Node: seen}
	if entry.Managed() && entry.Planned != nil {
		upgraded.Decisions, upgraded.Planned = basis.Decisions, &entry.Planned.NodePlan
		upgraded.DaemonSets, upgraded.GPUReady = basis.Stack.DaemonSets, entry.Latest.InService()
		health.Decisions, health.Planned, health.Assessment = basis.Decisions, &entry.Planned.NodePlan, &entry.Latest
	}
	health.Managed = entry.Managed()
	var ds *appsv1.DaemonSet
	p.Upgrade, ds = observe.UpgradeNode(upgraded)
	if ds != nil {
		p.DaemonSet = ds.Name
	}
	p.Health = observe.HealthNode(health)
	p.Reconciled.Entry = withoutVersions(*entry)
	return p
}

// withoutVersions returns the entry without what each version of the Node changes, and without its labels: a plan
// reads those that it depends on, and its result shows that.
func withoutVersions(entry fleet.Entry) fleet.Entry {
	entry.Facts.Labels, entry.Writes = nil, fleet.Writes{Stage: entry.Writes.Stage}
	entry.Latest.At = time.Time{}
	entry.Report.At = time.Time{}
	if entry.Planned != nil {
		node := entry.Planned.NodePlan
		node.Facts.Labels = nil
		entry.Planned = &fleet.PlannedNode{NodePlan: node}
	}
	return entry
}

// missed returns the controllers that plan something else for the changed object, and get no event.
// A field that the cache does not have cannot matter.
func (w *watched) missed(kind string, before, after client.Object) (matters bool, missed []string) {
	after.SetResourceVersion(before.GetResourceVersion())
	if reflect.DeepEqual(before, after) {
		return false, nil
	}
	defer w.restore()
	passes := func(controller string) bool {
		p := w.predicates[controller+" "+kind]
		return p != nil && p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}
	w.put(after)
	reconciles := passes("node")
	now, assessed, acting := w.follow()
	check := func(controller string, differs, wakes bool) {
		matters = matters || differs
		if differs && !wakes {
			missed = append(missed, controller)
		}
	}
	check("node", !reflect.DeepEqual(now.Reconciled, w.now.Reconciled), reconciles)
	if !reconciles {
		w.restore()
		w.put(after)
		now, assessed, acting = w.plan(false), false, false
	}
	differs := !reflect.DeepEqual(now.Upgrade, w.now.Upgrade) || now.DaemonSet != w.now.DaemonSet
	check("upgrade", differs, passes("upgrade") || assessed)
	check("health", !reflect.DeepEqual(now.Health, w.now.Health), passes("health") || acting)
	return matters, missed
}

// follow reconciles the node, and returns what is planned then and which events the fleet has: at once, or when the
// node is reconciled again, as for what is reported after a dwell time.
func (w *watched) follow() (now planned, assessed, acting bool) {
	now = w.plan(true)
	assessed, acting = w.assessed(), w.acting()
	if now.again > 0 {
		at := w.clock.Now()
		w.advance(now.again)
		w.reconcileNode(w.name)
		w.clock.SetTime(at)
		assessed, acting = w.assessed() || assessed, w.acting() || acting
	}
	return now, assessed, acting
}

// inUpgrade is a node with everything that a Node can have: in an upgrade, with a drain, a fault and its record.
func inUpgrade(o *operator, name string) {
	o.changeNode(name, func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Spec.Taints = []corev1.Taint{
			{Key: labels.TaintUnhealthy, Effect: corev1.TaintEffectNoSchedule},
			{Key: labels.TaintNotReady, Effect: corev1.TaintEffectNoSchedule},
			{Key: labels.TaintToBeDeleted, Effect: corev1.TaintEffectNoSchedule},
			{Key: labels.TaintDisrupted, Effect: corev1.TaintEffectNoSchedule},
		}
		maps.Copy(n.Labels, map[string]string{
			labels.UpgradeState: "wait-for-jobs-required", labels.UpgradeSkip: labels.True, labels.NVSentinelState: "draining",
			labels.MIGConfig: "all-disabled", labels.MIGConfigState: labels.MIGStatePending,
		})
		at := o.clock.Now().UTC().Format(time.RFC3339)
		n.Annotations = map[string]string{
			labels.UpgradeRecord: fmt.Sprintf(`{"uid":%q,"round":1,"state":"wait-for-jobs-required","since":%q,`+
				`"started":%q,"target":"old","driver":"older","driverPod":"before","cordoned":true}`, n.UID, at, at),
			labels.MIGDrain: fmt.Sprintf(
				`{"uid":%q,"state":"evicts-users","layout":"all-disabled","granted":%q,"since":%q}`, n.UID, at, at),
			labels.GPUHealth:     `{"boot":"1","faults":[]}`,
			labels.HealthRecord:  fmt.Sprintf(`{"uid":%q,"state":"done","action":"taint","fault":"reset-1"}`, n.UID),
			labels.HealthConsent: labels.HealthForbid, labels.UpgradeRequested: labels.True,
			labels.UpgradeInitialCordon: labels.True, labels.GPUsOnBus: "8", labels.DiscoveryMissingSince: at,
			labels.MIGConfigWritten: "all-disabled", labels.PluginConfigRead: "plugin-configs/default x",
			labels.ReadyBoot: "boot", labels.ReportRecord: `{"stage":"Driver"}`,
		}
		n.Status.NodeInfo.BootID = "boot"
		metav1.SetMetaDataLabel(&n.ObjectMeta, labels.DriverAnchor, n.Labels[labels.Pool])
	})
}

// scenes are states of a node from which one field changes.
var scenes = map[string]func(*operator, string){
	"at rest": func(*operator, string) {},
	"a pod fails": func(o *operator, name string) {
		o.updatePod("driver", name, crashPod)
		o.updatePod("device-plugin", name, crashPod)
	},
	"a driver is outdated": func(o *operator, name string) {
		o.updatePod("driver", name, func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{labels.TemplateDigest: "earlier"}
		})
	},
	"in an upgrade": inUpgrade,
}

// chosenScenes are all scenes, and with -short one of them, which chance selects: make test-envtest and make
// test-controller run the others.
func chosenScenes(t *testing.T) map[string]func(*operator, string) {
	t.Helper()
	chosen := map[string]func(*operator, string){}
	for _, scene := range chance.Part(t, t.Name(), slices.Collect(maps.Keys(scenes)), 1, chance.Itself) {
		chosen[scene] = scenes[scene]
	}
	return chosen
}

// TestEachFieldOfANodeThatMattersWakes and the tests below: what a controller plans, or does, follows from fields of
// objects. For each field that an object has, and each label and annotation that this project has a name for: if its
// change changes a plan, the change is an event for the controller, by its predicate or through the fleet.
func TestEachFieldOfANodeThatMattersWakes(t *testing.T) {
	var lost wakeups
	for scene, prepare := range chosenScenes(t) {
		w := watch(prepare)
		changed := mutants(w.node)
		for _, key := range namedKeys() {
			for _, value := range []string{labels.True, labels.False, "x", "2026-01-01T00:00:00Z"} {
				changed = append(changed,
					with(w.node, "/metadata/labels/"+key, func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, key, value) }),
					with(w.node, "/metadata/annotations/"+key, func(n *corev1.Node) {
						metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value)
					}))
			}
		}
		for _, m := range changed {
			before, err := cachefilter.TrimNode(w.node.DeepCopy())
			must(err)
			after, err := cachefilter.TrimNode(m.object)
			must(err)
			if m.object.Name == w.name {
				matters, missed := w.missed("node", as[client.Object](before), as[client.Object](after))
				lost.note(scene, "node"+m.path, matters, missed)
			}
		}
	}
	lost.judge(t)
}

// TestEachFieldOfAPodThatMattersWakes: see TestEachFieldOfANodeThatMattersWakes.
func TestEachFieldOfAPodThatMattersWakes(t *testing.T) {
	var lost wakeups
	for scene, prepare := range chosenScenes(t) {
		w := watch(prepare)
		for _, pod := range w.pods {
			for _, m := range mutants(pod) {
				// A trimmer of its own: what another mutant has under the same UID is not that of this one.
				before, err := cachefilter.NewPodTrimmer().Pod(pod.DeepCopy())
				must(err)
				after, err := cachefilter.NewPodTrimmer().Pod(m.object)
				must(err)
				if m.object.Name == pod.Name && m.object.Namespace == pod.Namespace {
					matters, missed := w.missed("pod", as[client.Object](before), as[client.Object](after))
					lost.note(scene, "pod"+m.path+" of "+pod.Labels[labels.Operand], matters, missed)
				}
			}
		}
	}
	lost.judge(t)
}

// with returns a copy of the node after a change.
func with(node *corev1.Node, path string, change func(*corev1.Node)) mutant[*corev1.Node] {
	changed := node.DeepCopy()
	change(changed)
	return mutant[*corev1.Node]{path, changed}
}

// namedKeys returns the keys of labels and annotations that package labels has a constant for.
func namedKeys() []string {
	constant := regexp.MustCompile(`(?m)^\s+(\w+)\s+= (?:(\w+) \+ )?"([^"]*)"`)
	values, found := map[string]string{}, map[string]bool{}
	files, err := filepath.Glob("../names/labels/*.go")
	must(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(err)
		for _, match := range constant.FindAllStringSubmatch(string(text), -1) {
			value := values[match[2]] + match[3]
			values[match[1]] = value
			if prefix, name, is := strings.Cut(value, "/"); is && strings.Contains(prefix, ".") && name != "" {
				found[value] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// wakeups collects the fields that matter, and those of them whose change is no event for a controller.
type wakeups struct {
	walked, matter int
	lost           map[string]string
}

func (w *wakeups) note(scene, path string, matters bool, missed []string) {
	w.walked++
	if matters {
		w.matter++
	}
	for _, controller := range missed {
		if w.lost == nil {
			w.lost = map[string]string{}
		}
		w.lost[controller+" "+path] = scene
	}
}

func (w *wakeups) judge(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	t.Logf("%d changes of one field, %d change a plan", w.walked, w.matter)
	g.Expect(w.matter).To(BeNumerically(">=", 10), "the planners read hardly a field")
	g.Expect(w.lost).To(BeEmpty(), "changes that no event follows, by the scene")
}
