package clusterpolicy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
	"github.com/clusterpolicy/gpu-operator/internal/status"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/migrate"
)

// driverPodOf returns a driver pod of the DaemonSet with this UID; of none for "".
func driverPodOf(name string, owner types.UID) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{labels.Component: labels.DriverComponent},
	}}
	if owner != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "DaemonSet", Name: string(owner), UID: owner, Controller: new(true),
		}}
	}
	return pod
}

// driverDaemonSet returns a DaemonSet of NVIDIA's operator for the policy, or of this operator.
func driverDaemonSet(name string, theirs bool) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(name), Generation: 2,
		Labels:      map[string]string{labels.Component: labels.DriverComponent},
		Annotations: map[string]string{labels.Digest: "digest"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "nvidia.com/v1", Kind: "ClusterPolicy", Name: "policy", UID: "policy", Controller: new(true),
		}},
	}}
	if theirs {
		ds.Annotations = nil
	}
	ds.Status = appsv1.DaemonSetStatus{ObservedGeneration: 2, CurrentNumberScheduled: 1, UpdatedNumberScheduled: 1}
	return ds
}

// A pod that has installed what its new DaemonSet installs counts as up to date, and no other pod does.
func TestOnlyPodsOfTheSameDriverAreUpToDate(t *testing.T) {
	g := NewWithT(t)
	driver := func(image string) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "nvidia-driver-ctr", Image: image}}}
	}
	to := &appsv1.DaemonSet{}
	to.Spec.Template.Annotations = map[string]string{labels.TemplateDigest: "digest"}
	to.Spec.Template.Spec = driver("nvcr.io/nvidia/driver:1")
	same := move{pod: &corev1.Pod{Spec: driver("mirror.example/driver:1")}, to: to}
	g.Expect(same.annotations()).To(Equal(map[string]string{labels.TemplateDigest: "digest"}))
	other := move{pod: &corev1.Pod{Spec: driver("nvcr.io/nvidia/driver:2")}, to: to}
	g.Expect(other.annotations()).To(BeNil())
}

// Once all drivers are taken over, they are looked for again where a DaemonSet of NVIDIA's is back, or where an
// outdated one has a pod without the labels of this operator.
func TestWhenDriversAreLookedForAgain(t *testing.T) {
	for name, test := range map[string]struct {
		notYet bool
		change func(*appsv1.DaemonSet)
		pods   []*corev1.Pod
		want   bool
	}{
		"not taken over yet":               {notYet: true, want: true},
		"up to date":                       {pods: []*corev1.Pod{driverPodOf("a", "one")}},
		"NVIDIA's is back":                 {change: func(ds *appsv1.DaemonSet) { ds.Annotations = nil }, want: true},
		"outdated":                         {change: outdated},
		"outdated, with an unlabelled pod": {change: outdated, pods: []*corev1.Pod{driverPodOf("a", "one")}, want: true},
		"outdated, with a pod of another":  {change: outdated, pods: []*corev1.Pod{driverPodOf("a", "two")}},
		"not observed, with an unlabelled pod": {change: func(ds *appsv1.DaemonSet) {
			ds.Status.ObservedGeneration = 1
		}, pods: []*corev1.Pod{driverPodOf("a", "one")}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := fake.NewClientBuilder()
			for _, pod := range test.pods {
				c = c.WithObjects(pod)
			}
			ds := driverDaemonSet("one", false)
			if test.change != nil {
				test.change(ds)
			}
			s := &scope{
				Reconciler: &Reconciler{
					Options: Options{Client: c.Build(), Namespace: namespace}, driversTakenOver: !test.notYet,
				},
				policy:   &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{UID: "policy"}},
				snapshot: observe.Snapshot{DaemonSets: map[string]*appsv1.DaemonSet{"one": ds}},
			}
			absent := driverDaemonSet("absent", false)
			g.Expect(s.mayHaveTheirDrivers(t.Context(), []*appsv1.DaemonSet{absent, ds})).To(Equal(test.want))
		})
	}
}

func outdated(ds *appsv1.DaemonSet) { ds.Status.UpdatedNumberScheduled = 0 }

// What NVIDIA's operator has left are its DaemonSets, and the driver pods that belong to none.
func TestDriversThatAreLeft(t *testing.T) {
	g := NewWithT(t)
	labelled := driverPodOf("labelled", "")
	labelled.Labels[labels.Operand] = "driver"
	live := fake.NewClientBuilder().WithObjects(
		driverDaemonSet("ours", false), driverDaemonSet("theirs", true),
		driverPodOf("unowned", ""), labelled, driverPodOf("of-others", "others"),
	).Build()
	s := &scope{
		Reconciler: &Reconciler{Options: Options{Live: live, Namespace: namespace, Timing: DefaultTiming()}},
		policy:     &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{UID: "policy"}},
	}
	left, err := s.leftDrivers(t.Context(), nil)
	g.Expect(err).To(MatchError(ContainSubstring("pod unowned is on node ")), "its node has no driver pool")
	g.Expect(left.daemonSets).To(ConsistOf(HaveField("Name", "theirs")))
	g.Expect(left.unowned).To(ConsistOf(HaveField("Name", "labelled"), HaveField("Name", "unowned")))
}

// The only DaemonSet of NVIDIA's becomes one of this operator as it is if it stays, and keeps all pods.
func TestWhichDaemonSetsAreOrphaned(t *testing.T) {
	ours, other := driverDaemonSet(driverName, false), driverDaemonSet("other", false)
	deleted := driverDaemonSet(driverName, true)
	deleted.DeletionTimestamp = new(metav1.Unix(1, 0))
	only := []*appsv1.DaemonSet{driverDaemonSet(driverName, true)}
	for name, test := range map[string]struct {
		left     leftDrivers
		rendered []*appsv1.DaemonSet
		want     bool
	}{
		"none": {rendered: []*appsv1.DaemonSet{ours}},
		"one that keeps its pods": {leftDrivers{daemonSets: only, moves: []move{{to: ours}}},
			[]*appsv1.DaemonSet{other, ours}, false},
		"one without pods":         {leftDrivers{daemonSets: only}, []*appsv1.DaemonSet{ours}, false},
		"one that is not rendered": {leftDrivers{daemonSets: only}, []*appsv1.DaemonSet{other}, true},
		"one that is deleted": {leftDrivers{daemonSets: []*appsv1.DaemonSet{deleted}},
			[]*appsv1.DaemonSet{ours}, true},
		"one whose pods go to another": {leftDrivers{daemonSets: only, moves: []move{{to: ours}, {to: other}}},
			[]*appsv1.DaemonSet{ours}, true},
		"two": {leftDrivers{daemonSets: append(only[:1:1], other)}, []*appsv1.DaemonSet{ours}, true},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(test.left.mustBeOrphaned(test.rendered)).To(Equal(test.want))
		})
	}
}

// The hostnames of a driver pool are those of its nodes that have the label.
func TestHostnamesOfAPool(t *testing.T) {
	facts := func(pool, hostname string) *fleet.Entry {
		entry := &fleet.Entry{Facts: nodeinfo.Facts{Pool: pool, Labels: map[string]string{}}}
		if hostname != "" {
			entry.Facts.Labels[corev1.LabelHostname] = hostname
		}
		return entry
	}
	s := &scope{view: fleet.View{Nodes: []*fleet.Entry{
		facts("p", "b"), facts("q", "c"), facts("p", ""), facts("p", "a"),
	}}}
	NewWithT(t).Expect(s.hostnames("p")).To(Equal([]string{"a", "b"}))
	NewWithT(t).Expect(s.hostnames("none")).To(BeEmpty())
}

// renderedDriver returns a DaemonSet of the driver as it is rendered for a pool.
func renderedDriver(name, pool string) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: namespaced(name)}
	ds.Spec.Template.Labels = map[string]string{labels.App: name, labels.Pool: pool, labels.Operand: "driver"}
	ds.Spec.Template.Annotations = map[string]string{labels.TemplateDigest: "digest"}
	ds.Spec.Template.Spec = corev1.PodSpec{
		Containers: []corev1.Container{{Name: "nvidia-driver-ctr", Image: "nvcr.io/nvidia/driver:1"}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{},
		}},
	}
	return ds
}

// onNode gives a driver pod a node and an image of the driver.
func onNode(pod *corev1.Pod, node, image string) *corev1.Pod {
	pod.Spec = corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "nvidia-driver-ctr", Image: image}}}
	return pod
}

// inPools returns a view of nodes with these driver pools, by node.
func inPools(pools map[string]string) fleet.View {
	view := fleet.View{}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		view.Nodes = append(view.Nodes, &fleet.Entry{Facts: nodeinfo.Facts{
			Name: name, Pool: pools[name], Labels: map[string]string{corev1.LabelHostname: "host-" + name},
		}})
	}
	return view
}

// A DaemonSet also selects its nodes without the labels of their variant from when it gets pods of NVIDIA's operator
// until the DaemonSet controller has processed these.
func TestNodesThatADaemonSetKeeps(t *testing.T) {
	driver := operandNamed("driver")
	keep := func(ds *appsv1.DaemonSet, hostnames ...string) *appsv1.DaemonSet {
		ds = ds.DeepCopy()
		migrate.Nodes{
			Deploy: "nvidia.com/gpu.deploy.driver", Anchor: labels.AnchorPrefix + "driver", Hostnames: hostnames,
		}.Keep(ds)
		return ds
	}
	// live returns a DaemonSet that keeps its nodes, with these numbers of pods.
	live := func(observed int64, desired, current int32) *appsv1.DaemonSet {
		ds := keep(renderedDriver(driverName, "p"))
		ds.ObjectMeta = driverDaemonSet(driverName, false).ObjectMeta
		ds.Status = appsv1.DaemonSetStatus{
			ObservedGeneration: observed, DesiredNumberScheduled: desired, CurrentNumberScheduled: current,
		}
		return ds
	}
	neverKept := renderedDriver(driverName, "p")
	neverKept.ObjectMeta = driverDaemonSet(driverName, false).ObjectMeta
	for name, test := range map[string]struct {
		live    *appsv1.DaemonSet
		unowned string
		several bool
		kept    bool
	}{
		"new":                              {},
		"new, with its pods":               {unowned: driverName, kept: true},
		"new, with pods of another":        {unowned: "another"},
		"NVIDIA's":                         {live: driverDaemonSet(driverName, true), kept: true},
		"one of several":                   {live: driverDaemonSet(driverName, true), several: true, kept: true},
		"taken over":                       {live: live(1, 3, 3), kept: true},
		"taken over, without all pods":     {live: live(2, 3, 2), kept: true},
		"taken over, with all pods":        {live: live(2, 3, 3)},
		"taken over, with pods to be gone": {live: live(2, 3, 4)},
		"never taken over":                 {live: neverKept},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{
				Reconciler: &Reconciler{}, policy: policyOf(v1.ClusterPolicySpec{}, 1),
				view: inPools(map[string]string{"a": "p", "b": "q"}),
			}
			if test.live != nil {
				s.snapshot.DaemonSets = map[string]*appsv1.DaemonSet{driverName: test.live}
			}
			var unowned []*corev1.Pod
			if test.unowned != "" {
				pod := driverPodOf("a", "")
				pod.Labels[labels.App] = test.unowned
				unowned = append(unowned, pod)
			}
			rendered := []*appsv1.DaemonSet{renderedDriver(driverName, "p")}
			var want []*appsv1.DaemonSet
			var hostnames []string
			if test.several {
				rendered, hostnames = append(rendered, renderedDriver("other", "q")), []string{"host-a"}
			}
			for _, ds := range rendered {
				if test.kept && ds.Name == driverName {
					ds = keep(ds, hostnames...)
				}
				want = append(want, ds)
			}
			before := rendered[0].DeepCopy()
			g.Expect(s.keepNodes(&driver, rendered, unowned)).To(Equal(want))
			g.Expect(rendered[0]).To(Equal(before), "the rendered one may be used again")
		})
	}
}

// A DaemonSet of NVIDIA's operator stays as it is while a node that it serves has no anchor.
func TestWhenADaemonSetIsTakenOver(t *testing.T) {
	for name, test := range map[string]struct {
		live, anchored, held bool
		owner                types.UID
		digest               string
	}{
		"none":                 {},
		"this operator's":      {live: true, owner: policyUID, digest: "1"},
		"NVIDIA's":             {live: true, owner: policyUID, anchored: true},
		"NVIDIA's, held":       {live: true, owner: policyUID, held: true},
		"of an NVIDIADriver":   {live: true, owner: "object", held: true},
		"of someone else":      {live: true, owner: "else"},
		"of someone, anchored": {live: true, owner: "else", anchored: true},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t)
			s := u.scope()
			s.drivers = []v1alpha1.NVIDIADriver{{ObjectMeta: metav1.ObjectMeta{UID: "object"}}}
			s.view = inPools(map[string]string{"a": "", "b": ""})
			s.view.Nodes[0].Facts.Deploy = map[string]string{"container-toolkit": "false"}
			s.view.Nodes[1].Facts.Deploy = map[string]string{"container-toolkit": labels.True}
			if test.anchored {
				s.view.Nodes[1].Facts.Labels[labels.AnchorPrefix+"container-toolkit"] = "ubuntu"
			}
			if test.live {
				ds := driverDaemonSet(toolkitName, true)
				ds.OwnerReferences[0].UID = test.owner
				ds.Annotations = map[string]string{labels.Digest: test.digest}
				s.snapshot.DaemonSets = map[string]*appsv1.DaemonSet{toolkitName: ds}
			}
			config := &corev1.ConfigMap{ObjectMeta: namespaced("config")}
			ds := &appsv1.DaemonSet{ObjectMeta: namespaced(toolkitName)}
			s.planned.Steps = []plan.Step{{Operand: operandNamed("container-toolkit")}}
			s.objects["container-toolkit"] = []manifest.Object{ds, config}
			s.takeOver(u.context())
			u.Expect(s.err).NotTo(HaveOccurred())
			u.Expect(u.takeCalls()).To(BeEmpty())
			if !test.held {
				u.Expect(s.applied).To(BeEmpty())
				u.Expect(s.objects["container-toolkit"]).To(Equal([]manifest.Object{config, ds}))
				return
			}
			u.Expect(s.objects["container-toolkit"]).To(Equal([]manifest.Object{config}))
			u.Expect(s.applied["container-toolkit"].Err).To(And(MatchError(status.ErrNotTakenOver), MatchError(HaveSuffix(
				"DaemonSet nvidia-container-toolkit-daemonset of NVIDIA's operator is kept as it is: node b has no discovery "+
					"labels from which its variant follows"))))
		})
	}
}

// Only operands with DaemonSets are taken over. Without the drivers of NVIDIA's operator, no driver is applied, and the
// pass is retried.
func TestDriversThatCannotBeRead(t *testing.T) {
	u := newUnit(t)
	s := u.scope()
	config, ds := &corev1.ConfigMap{ObjectMeta: namespaced("config")}, renderedDriver(driverName, "p")
	s.planned.Steps = []plan.Step{{Operand: operandNamed("runtime-classes")}, {Operand: operandNamed("driver")}}
	s.objects["runtime-classes"] = []manifest.Object{ds, config}
	s.takeOver(u.context())
	u.Expect(u.takeCalls()).To(BeEmpty(), "no driver is rendered")
	u.Expect(s.objects["runtime-classes"]).To(Equal([]manifest.Object{ds, config}))
	for _, op := range []string{"live list DaemonSet", "live list Pod"} {
		s = u.scope()
		s.planned.Steps = []plan.Step{{Operand: operandNamed("driver")}}
		s.objects["driver"] = []manifest.Object{ds, config}
		u.failOnce(op, 1)
		s.takeOver(u.context())
		u.Expect(s.objects["driver"]).To(Equal([]manifest.Object{config}), op)
		u.Expect(s.applied["driver"].Err).To(MatchError(errInjected), op)
		u.Expect(s.err).To(MatchError(errInjected), op)
	}
	u.onCall(nil)
	u.driversTakenOver = true
	live := driverDaemonSet(driverName, false)
	live.Status.UpdatedNumberScheduled = 0
	s.snapshot.DaemonSets = map[string]*appsv1.DaemonSet{driverName: live}
	u.failOnce("cached list Pod", 1)
	_, err := s.handOverDrivers(u.context(), []*appsv1.DaemonSet{ds})
	u.Expect(err).To(MatchError(errInjected))
	u.Expect(u.driversTakenOver).To(BeTrue())
	s.snapshot.DaemonSets[driverName] = driverDaemonSet(driverName, true)
	u.failOnce("live list Pod", 1)
	_, err = s.handOverDrivers(u.context(), []*appsv1.DaemonSet{ds})
	u.Expect(err).To(MatchError(errInjected))
	u.Expect(u.driversTakenOver).To(BeFalse(), "NVIDIA's is back")
}

// The pods of NVIDIA's only DaemonSet, which becomes this operator's, are labelled. They are looked for until all of
// them belong to a DaemonSet.
func TestHowDriverPodsAreTakenOver(t *testing.T) {
	theirs := driverDaemonSet(driverName, true)
	owned := onNode(driverPodOf("owned", theirs.UID), "a", "mirror.example/driver:1")
	unowned := onNode(driverPodOf("unowned", ""), "a", "nvcr.io/nvidia/driver:2")
	unowned.Status.Phase = corev1.PodRunning
	ours := onNode(driverPodOf("ours", "ours"), "a", "nvcr.io/nvidia/driver:1")
	u := newUnit(t, theirs, owned, unowned, ours)
	s := u.scope()
	s.view = inPools(map[string]string{"a": "p"})
	rendered := []*appsv1.DaemonSet{renderedDriver(driverName, "p")}

	u.failOnce("patch Pod", 1)
	_, err := s.handOverDrivers(u.context(), rendered)
	u.Expect(err).To(MatchError(errInjected))
	u.onCall(nil)
	left, err := s.handOverDrivers(u.context(), rendered)
	u.Expect(err).NotTo(HaveOccurred())
	u.Expect(left).To(ConsistOf(And(HaveField("Name", "unowned"), HaveField("Status", BeZero()),
		HaveField("ManagedFields", BeEmpty()), HaveField("Spec.NodeName", "a"))), "what stays in memory")
	u.Expect(u.driversTakenOver).To(BeFalse(), "their DaemonSet is to be replaced")
	for _, pod := range []*corev1.Pod{owned, unowned, ours} {
		u.Expect(u.get(pod)).To(Succeed())
	}
	u.Expect(owned.Labels).To(HaveKeyWithValue(labels.Pool, "p"))
	u.Expect(owned.Annotations).To(Equal(map[string]string{labels.TemplateDigest: "digest"}))
	u.Expect(unowned.Labels).To(HaveKeyWithValue(labels.Pool, "p"))
	u.Expect(unowned.Annotations).To(BeEmpty(), "it has installed another driver")
	u.Expect(ours.Labels).NotTo(HaveKey(labels.Pool))

	u.Expect(u.server.Delete(u.context(), theirs)).To(Succeed())
	_, err = s.handOverDrivers(u.context(), rendered)
	u.Expect(err).NotTo(HaveOccurred())
	u.Expect(u.driversTakenOver).To(BeFalse(), "a pod belongs to none")
	u.Expect(u.server.Delete(u.context(), unowned)).To(Succeed())
	_, err = s.handOverDrivers(u.context(), rendered)
	u.Expect(err).NotTo(HaveOccurred())
	u.Expect(u.driversTakenOver).To(BeTrue())
	u.takeCalls()
	u.Expect(s.handOverDrivers(u.context(), rendered)).To(BeNil())
	u.Expect(u.takeCalls()).To(BeEmpty())
}

// Several DaemonSets of NVIDIA's operator are deleted without their pods, and looked at again soon.
func TestDriversAreOrphaned(t *testing.T) {
	u := newUnit(t, driverDaemonSet("one", true), driverDaemonSet("two", true))
	s := u.scope()
	rendered := []*appsv1.DaemonSet{renderedDriver(driverName, "p")}
	u.failOnce("delete DaemonSet", 1)
	_, err := s.handOverDrivers(u.context(), rendered)
	u.Expect(err).To(MatchError(errInjected))
	u.Expect(s.requeueDelay).To(BeZero())
	u.onCall(nil)
	_, err = s.handOverDrivers(u.context(), rendered)
	u.Expect(err).To(And(MatchError(status.ErrNotTakenOver), MatchError(HaveSuffix(
		"driver DaemonSets of NVIDIA's operator are being deleted without their pods, which get others: one, two"))))
	u.Expect(s.requeueDelay).To(Equal(time.Second))
	u.Expect(u.takeWrites()).To(ContainElements("delete DaemonSet one", "delete DaemonSet two"))
}

func TestWhichDaemonSetGetsAPod(t *testing.T) {
	g := NewWithT(t)
	s := &scope{view: inPools(map[string]string{"a": "p", "b": "q", "c": "", "d": "r"})}
	p, q, none := renderedDriver("one", "p"), renderedDriver("two", "q"), renderedDriver("three", "")
	rendered := []*appsv1.DaemonSet{none, p, q}
	a, b := onNode(driverPodOf("on-a", ""), "a", ""), onNode(driverPodOf("on-b", ""), "b", "")
	g.Expect(s.moves([]*corev1.Pod{b, a}, rendered)).To(Equal([]move{{pod: b, to: q}, {pod: a, to: p}}))
	g.Expect(s.moves([]*corev1.Pod{a}, []*appsv1.DaemonSet{p})).To(HaveLen(1), "the first one")
	for node, pool := range map[string]string{"c": "", "d": "r", "unknown": ""} {
		_, err := s.moves([]*corev1.Pod{a, onNode(driverPodOf("lost", ""), node, "")}, rendered)
		g.Expect(err).To(And(MatchError(status.ErrNotTakenOver), MatchError(HaveSuffix(fmt.Sprintf("the drivers of "+
			"NVIDIA's operator are kept as they are: pod lost is on node %s, whose driver pool (%q) has no DaemonSet",
			node, pool)))))
	}
}

func TestWhenNothingIsLeftOfTheirDrivers(t *testing.T) {
	terminating := driverPodOf("a", "")
	terminating.DeletionTimestamp = new(metav1.Unix(1, 0))
	for name, test := range map[string]struct {
		left leftDrivers
		want bool
	}{
		"nothing":           {leftDrivers{}, true},
		"a terminating pod": {leftDrivers{unowned: []*corev1.Pod{terminating}}, true},
		"a pod":             {leftDrivers{unowned: []*corev1.Pod{terminating, driverPodOf("a", "")}}, false},
		"a DaemonSet":       {leftDrivers{daemonSets: []*appsv1.DaemonSet{driverDaemonSet("a", true)}}, false},
		"a pod to label":    {leftDrivers{moves: []move{{}}}, false},
	} {
		NewWithT(t).Expect(test.left.isNothing()).To(Equal(test.want), name)
	}
}

// The start-up probe of NVIDIA's drivers gets the policy as its owner, once, while such drivers may be left.
func TestTheProbeScriptIsKept(t *testing.T) {
	const object types.UID = "object"
	for name, test := range map[string]struct {
		owner          types.UID
		digest         string
		noObjects, off bool
		absent         bool
		fails          error
		calls          []string
	}{
		"of an object":         {owner: object, calls: []string{"live get ConfigMap", "patch ConfigMap"}},
		"of the policy":        {owner: policyUID, calls: []string{"live get ConfigMap"}},
		"of this operator":     {owner: object, digest: "1", calls: []string{"live get ConfigMap"}},
		"of none":              {calls: []string{"live get ConfigMap"}},
		"absent":               {absent: true, calls: []string{"live get ConfigMap"}},
		"unreadable":           {owner: object, fails: errInjected, calls: []string{"live get ConfigMap"}},
		"without objects":      {owner: object, noObjects: true},
		"all are taken over":   {owner: object, off: true},
		"all, without objects": {owner: object, off: true, noObjects: true},
	} {
		t.Run(name, func(t *testing.T) {
			script := &corev1.ConfigMap{ObjectMeta: namespaced(labels.ProbeScript)}
			script.Annotations = map[string]string{labels.Digest: test.digest}
			if test.owner != "" {
				script.OwnerReferences = []metav1.OwnerReference{{
					APIVersion: "nvidia.com/v1alpha1", Kind: "NVIDIADriver", Name: "a", UID: test.owner, Controller: new(true),
				}}
			}
			var objects []client.Object
			if !test.absent {
				objects = append(objects, script)
			}
			u := newUnit(t, objects...)
			u.driversTakenOver = test.off
			s := u.scope()
			if !test.noObjects {
				s.drivers = []v1alpha1.NVIDIADriver{{ObjectMeta: metav1.ObjectMeta{UID: object}}}
			}
			u.onCall(func(context.Context, call) error { return test.fails })
			s.keepScript(u.context())
			u.onCall(nil)
			var calls []string
			for _, made := range u.takeCalls() {
				u.Expect(made.name).To(Equal(labels.ProbeScript))
				calls = append(calls, made.op)
			}
			u.Expect(calls).To(Equal(test.calls))
			u.Expect(errors.Is(s.err, errInjected)).To(Equal(test.fails != nil), "%v", s.err)
			u.Expect(s.err == nil).To(Equal(test.fails == nil), "%v", s.err)
			if len(calls) < 2 {
				return
			}
			u.Expect(u.get(script)).To(Succeed())
			u.Expect(script.OwnerReferences).To(Equal([]metav1.OwnerReference{
				render.OwnerReference(render.Owner{Name: "policy", UID: string(policyUID)}),
			}))
		})
	}
}

// While drivers of NVIDIA's operator may be left, it matters which pods mount its start-up probe.
func TestPodsThatMountTheProbe(t *testing.T) {
	mounting := onNode(driverPodOf("mounting", ""), "a", "")
	script := &corev1.ConfigMapVolumeSource{}
	script.Name = labels.ProbeScript
	mounting.Spec.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{ConfigMap: script}}}
	u := newUnit(t, mounting, onNode(driverPodOf("other", ""), "a", ""))
	live := map[string]rollout.Live{}
	u.Expect(u.scope().addLeftPods(u.context(), live)).To(Succeed())
	u.Expect(live).To(Equal(map[string]rollout.Live{"mounting": {NeedsProbeScript: true}}))
	u.failOnce("live list Pod", 1)
	u.Expect(u.scope().addLeftPods(u.context(), live)).To(MatchError(errInjected))
	u.driversTakenOver = true
	u.takeCalls()
	u.Expect(u.scope().addLeftPods(u.context(), live)).To(Succeed())
	u.Expect(u.takeCalls()).To(BeEmpty())
}
