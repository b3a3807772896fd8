package invariant

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
	"github.com/clusterpolicy/gpu-operator/test/campaign/history"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// builder builds a history: each step is some seconds after the previous one.
type builder struct {
	run *Run
	now time.Time
}

func newBuilder() *builder {
	return &builder{now: time.Unix(1000, 0), run: &Run{
		Begin: history.World{}, Namespace: "ns", Cordoned: "cordoned",
		MayGo:        func(string, string) bool { return false },
		Unprivileged: func(string, string) bool { return true },
	}}
}

func (s *builder) wait(seconds int) *builder {
	s.now = s.now.Add(time.Duration(seconds) * time.Second)
	return s
}

func (s *builder) happens(kind string, before, object client.Object, gone bool) *builder {
	key := history.Key{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()}
	s.run.Events = append(s.run.Events, history.Event{
		Key: key, Before: before, Object: object, Gone: gone, Version: uint64(len(s.run.Events) + 1), At: s.now,
	})
	return s.wait(1)
}

func (s *builder) writes(record fault.Record) *builder {
	record.Begin = s.now
	if record.Code == 0 {
		record.Code = 200
	}
	s.run.Writes = append(s.run.Writes, record)
	return s
}

var ours = []metav1.OwnerReference{{Kind: "ClusterPolicy", Name: "p", UID: "policy", Controller: new(true)}}

func daemonSet(available int32) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "ds", UID: "uid-of-ds", OwnerReferences: ours,
			Labels: map[string]string{labels.Operand: "driver"},
		},
		Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, NumberAvailable: available},
	}
}

func policy(ready metav1.ConditionStatus) *v1.ClusterPolicy {
	return &v1.ClusterPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 3},
		Status: v1.ClusterPolicyStatus{
			ObservedGeneration: 3, Conditions: []metav1.Condition{{Type: v1.ConditionReady, Status: ready}},
			NodeSummary: &v1.NodeSummary{Total: 2, Ready: 2}},
	}
}

// exporter is auxiliary, and not up to date on a node.
var exporter = func() *appsv1.DaemonSet {
	ds := daemonSet(1)
	ds.Labels[labels.Operand] = "dcgm-exporter"
	return ds
}()

// allReady reports the policy as ready, including auxiliary operands.
var allReady = func() *v1.ClusterPolicy {
	p := policy(metav1.ConditionTrue)
	p.Status.Conditions = append(p.Status.Conditions,
		metav1.Condition{Type: v1.ConditionAuxiliaryReady, Status: metav1.ConditionTrue})
	return p
}()

func node(change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "node-a", Labels: map[string]string{UserPrefix + "team": "hpc"}},
	}
	if change != nil {
		change(n)
	}
	return n
}

func pod(operand string, ready bool) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: operand, Labels: map[string]string{labels.Operand: operand}},
		Spec:       corev1.PodSpec{NodeName: "a"},
	}
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

// owned is a DaemonSet whose status is behind, with its pods of a template.
func owned(digest string, ready bool, names ...string) *builder {
	ds := daemonSet(1)
	ds.Spec.Template.Annotations = map[string]string{labels.TemplateDigest: "new"}
	b := newBuilder().happens(history.DaemonSet, nil, ds, false)
	owner := metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
	for _, name := range names {
		p := pod(name, ready)
		p.Labels = nil
		p.Annotations = map[string]string{labels.TemplateDigest: digest}
		p.OwnerReferences = []metav1.OwnerReference{*owner}
		b.happens(history.Pod, nil, p, false)
	}
	return b
}

func patchOf(resource, name, body, version string) fault.Record {
	return fault.Record{
		Request: fault.Request{Verb: fault.Patch, Resource: resource, Namespace: "ns", Name: name}, Body: []byte(body),
		Version: version,
	}
}

// TestEachInvariant: for each invariant, a history that satisfies it, and one that violates it.
func TestEachInvariant(t *testing.T) {
	deletion := func(body string) fault.Record {
		return fault.Record{
			Request: fault.Request{Verb: fault.Delete, Resource: "daemonsets", Namespace: "ns", Name: "ds"}, Body: []byte(body),
		}
	}
	foreign := daemonSet(2)
	foreign.OwnerReferences = nil
	inHostNetwork := daemonSet(2)
	inHostNetwork.Spec.Template.Spec.HostNetwork = true
	asksForNetwork := policy(metav1.ConditionFalse)
	asksForNetwork.Spec.Driver = &v1.DriverSpec{ContainerSpec: v1.ContainerSpec{HostNetwork: new(true)}}
	privileged := daemonSet(2)
	privileged.Spec.Template.Spec.Containers = []corev1.Container{
		{Name: "c", SecurityContext: &corev1.SecurityContext{Privileged: new(true)}},
	}
	changed := daemonSet(2)
	changed.Generation = 9
	invalidPolicy := policy(metav1.ConditionFalse)
	invalidPolicy.UID, invalidPolicy.Status.Operands = "policy", []v1.OperandStatus{
		{Name: "driver", State: v1.OperandInvalid},
	}
	refusedPolicy := invalidPolicy.DeepCopy()
	refusedPolicy.Status.Operands[0].Message = "spec.driver: applying DaemonSet ds: it is forbidden"
	huge := policy(metav1.ConditionFalse)
	huge.Status.Namespace = string(make([]byte, 200<<10))
	tooSoon := policy(metav1.ConditionTrue)
	tooSoon.Status.NodeSummary.Ready = 1
	elsewhere := daemonSet(2)
	elsewhere.Namespace = "other"
	many := newBuilder()
	for range 30 {
		many.writes(patchOf("nodes", "a", `{}`, ""))
	}
	for name, test := range map[string]struct {
		builder *builder
		id      string
	}{
		"a cordon is written": {
			newBuilder().writes(patchOf("nodes", "a", `{"spec":{"unschedulable":true}}`, "")), "S2",
		},
		"the taint of a cordon is written back with others": {
			newBuilder().writes(patchOf("nodes", "a",
				`{"spec":{"taints":[{"key":"node.kubernetes.io/unschedulable"}]}}`, "")), "",
		},
		"a cordon is removed": {
			newBuilder().happens(history.Node, nil, node(func(n *corev1.Node) { n.Name = "cordoned" }), false), "S2",
		},
		"two nodes are upgraded, and one may be": {
			upgraded().upgrades("a", "pod-restart-required").upgrades("b", "pod-restart-required"), "S1",
		},
		"an upgrade": {
			upgraded().upgrades("a", "pod-restart-required").upgrades("a", "validation-required").upgrades("a", "upgrade-done").
				upgrades("b", "pod-deletion-required"), "",
		},
		"the record has another state": {upgraded().step("a", "pod-restart-required", "validation-required", true), "S3"},
		"an upgrade without a cordon": {
			upgraded().step("a", "pod-restart-required", "pod-restart-required", false), "S3",
		},
		"it ends without validation": {upgraded().upgrades("a", "pod-restart-required").upgrades("a", "upgrade-done"), "S4"},
		"it goes back": {
			upgraded().upgrades("a", "validation-required").upgrades("a", "pod-restart-required"), "S4",
		},
		"it begins while none is required": {upgraded().upgrades("a", "upgrade-done").upgrades("a", "drain-required"), "S4"},
		"no slot":                          {upgraded().upgrades("c", "pod-restart-required"), "S17"},
		"slots are written whatever they are": {
			upgraded().writes(patchOf("configmaps", labels.UpgradeSlots, `{"data":{"a":"{}"}}`, "")), "S17",
		},
		"slots are written as they were read": {upgraded().writes(
			patchOf("configmaps", labels.UpgradeSlots, `{"metadata":{"resourceVersion":"71"},"data":{"a":"{}"}}`, "")), ""},
		"slots are written with a part of the version": {upgraded().writes(
			patchOf("configmaps", labels.UpgradeSlots, `{"metadata":{"resourceVersion":"7"},"data":{"a":"71"}}`, "")), "S17"},
		"slots are deleted as they were read": {upgraded().writes(slotsDeleted("71")), ""},
		"slots are deleted whatever they are": {upgraded().writes(slotsDeleted("7")), "S17"},
		"a pod is deleted":                    {called("delete", "pods", 200), "S5"},
		"a driver is replaced by its upgrade": {
			upgraded().upgrades("a", "pod-restart-required").deletes(pod("driver", true)), "",
		},
		"a driver is deleted without an upgrade": {upgraded().deletes(pod("driver", true)), "S5"},
		"a driver is deleted before its turn": {
			upgraded().upgrades("a", "drain-required").deletes(pod("driver", true)), "S5",
		},
		"a pod of a user is deleted by an upgrade": {
			upgraded().upgrades("a", "pod-restart-required").deletes(pod("", true)), "S5",
		},
		"a validator of an earlier driver is replaced": {upgraded().deletes(pod("operator-validator", true)), ""},
		"a toolkit of an earlier driver is replaced":   {startedAgain().deletes(pod("container-toolkit", true)), ""},
		"an exporter is deleted with a driver":         {startedAgain().deletes(pod("dcgm-exporter", true)), "S5"},
		"images are pulled for an upgrade":             {startedAgain().creates("gpu-operator-driver-pull-1"), ""},
		"images are pulled without one":                {newBuilder().creates("gpu-operator-driver-pull-1"), "S5"},
		"another pod is created for an upgrade":        {startedAgain().creates("driver"), "S5"},
		"pods are read":                                {called("list", "pods", 200), ""},
		"a dependant first": {newBuilder().happens(history.Node, nil, node(nil), false).happens(history.Pod, nil,
			pod("driver", false), false).happens(history.Pod, nil, pod("container-toolkit", true), false), "S6"},
		"in the order of the graph": {newBuilder().happens(history.Node, nil, node(nil), false).happens(history.Pod, nil,
			pod("driver", true), false).happens(history.Pod, nil, pod("container-toolkit", true), false), ""},
		"the host has the driver": {newBuilder().happens(history.Node, nil, node(nil), false).happens(history.Pod, nil,
			pod("container-toolkit", true), false), ""},
		"a deletion with the UID": {
			newBuilder().happens(history.DaemonSet, nil, daemonSet(2), false).writes(deletion("uid-of-ds")), "",
		},
		"a deletion by name": {
			newBuilder().happens(history.DaemonSet, nil, daemonSet(2), false).writes(deletion("")), "S7",
		},
		"a foreign object deleted": {
			newBuilder().happens(history.DaemonSet, nil, foreign, false).writes(deletion("uid-of-ds")), "S7",
		},
		"a foreign object overwritten": {
			newBuilder().happens(history.DaemonSet, nil, foreign, false).writes(patchOf("daemonsets", "ds", "{}", "")), "S7",
		},
		"an own object overwritten": {
			newBuilder().happens(history.DaemonSet, nil, daemonSet(2), false).writes(patchOf("daemonsets", "ds", "{}", "")), "",
		},
		"a collection deleted": {
			newBuilder().writes(fault.Record{Request: fault.Request{Verb: fault.DeleteCollection, Resource: "daemonsets"}}),
			"S7",
		},
		"a user's label is removed": {
			newBuilder().happens(history.Node, node(nil), node(func(n *corev1.Node) { n.Labels = nil }), false), "S8",
		},
		"a node replaced": {
			newBuilder().happens(history.Node, node(nil), node(func(n *corev1.Node) { n.UID, n.Labels = "other", nil }), false),
			"",
		},
		"a label of no component": {
			newBuilder().writes(patchOf("nodes", "a", `{"metadata":{"labels":{"mine":"1"}}}`, "")), "S8",
		},
		"an own label": {
			newBuilder().writes(patchOf("nodes", "a", `{"metadata":{"labels":{"nvidia.com/gpu.present":"true"}}}`, "")), "",
		},
		"the network of the host": {newBuilder().happens(history.DaemonSet, nil, inHostNetwork, false), "S9"},
		"the network that the spec requests": {newBuilder().happens(history.ClusterPolicy, nil, asksForNetwork, false).
			happens(history.DaemonSet, nil, inHostNetwork, false), ""},
		"too many privileges":           {newBuilder().happens(history.DaemonSet, nil, privileged, false), "S9"},
		"ready with nodes that are not": {newBuilder().happens(history.ClusterPolicy, nil, tooSoon, false), "S10"},
		"ready while behind": {newBuilder().happens(history.DaemonSet, nil, daemonSet(1),
			false).wait(20).happens(history.ClusterPolicy, nil, policy(metav1.ConditionTrue), false), "S10"},
		"ready before the DaemonSet controller says so": {owned("new", true, "a", "b").wait(20).
			happens(history.ClusterPolicy, nil, policy(metav1.ConditionTrue), false), ""},
		"ready with an outdated pod": {owned("old", true, "a", "b").wait(20).
			happens(history.ClusterPolicy, nil, policy(metav1.ConditionTrue), false), "S10"},
		"ready with a pod that is not": {owned("new", false, "a", "b").wait(20).
			happens(history.ClusterPolicy, nil, policy(metav1.ConditionTrue), false), "S10"},
		"ready without a pod": {owned("new", true, "a").wait(20).
			happens(history.ClusterPolicy, nil, policy(metav1.ConditionTrue), false), "S10"},
		"ready a moment later": {newBuilder().happens(history.DaemonSet, nil, daemonSet(1),
			false).happens(history.ClusterPolicy, nil, policy(metav1.ConditionTrue), false), ""},
		"ready, and behind for long": {newBuilder().happens(history.ClusterPolicy, nil, policy(metav1.ConditionTrue),
			false).happens(history.DaemonSet, nil, daemonSet(1), false).wait(60).happens(history.Pod, nil, pod("", false),
			false), "S10"},
		"ready beside an exporter": {newBuilder().happens(history.DaemonSet, nil, exporter,
			false).wait(60).happens(history.ClusterPolicy, nil, policy(metav1.ConditionTrue), false), ""},
		"with the exporter reported as ready": {newBuilder().happens(history.DaemonSet, nil, exporter,
			false).wait(20).happens(history.ClusterPolicy, nil, allReady, false), "S10"},
		"not ready while behind": {newBuilder().happens(history.DaemonSet, nil, daemonSet(1),
			false).wait(60).happens(history.ClusterPolicy, nil, policy(metav1.ConditionFalse), false), ""},
		"a refused operand is applied at last": {newBuilder().happens(history.ClusterPolicy, nil, refusedPolicy,
			false).happens(history.DaemonSet, daemonSet(2), changed, false), ""},
		"an invalid operand changes": {newBuilder().happens(history.ClusterPolicy, nil, invalidPolicy,
			false).happens(history.DaemonSet, daemonSet(2), changed, false), "S11"},
		"a pod is deleted without a reason": {newBuilder().happens(history.Node, nil, node(nil), false).happens(history.Pod,
			pod("driver", true), pod("driver", true), true), "S13"},
		"a pod is deleted with its node": {
			newBuilder().happens(history.Pod, pod("driver", true), pod("driver", true), true), "",
		},
		"a right is missing":         {called("get", "nodes", 403), "S14"},
		"a Secret elsewhere":         {called("list", "secrets", 200), "S14"},
		"an operand elsewhere":       {newBuilder().happens(history.DaemonSet, nil, elsewhere, false), "S15"},
		"a huge status":              {newBuilder().happens(history.ClusterPolicy, nil, huge, false), "S16"},
		"repeated writes":            {many, "L9"},
		"writes that change nothing": {idle(3, false), "L9"},
		"lost responses":             {idle(3, true), ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			test.builder.run.End = test.builder.now
			var ids []string
			for _, violation := range Judge(test.builder.run) {
				ids = append(ids, violation.ID)
			}
			if test.id == "" {
				g.Expect(ids).To(BeEmpty())
				return
			}
			g.Expect(slices.Compact(ids)).To(Equal([]string{test.id}))
		})
	}
}

// idle writes a node several times without changing its revision.
func idle(times int, lost bool) *builder {
	s := newBuilder().happens(history.Node, nil, node(func(n *corev1.Node) { n.ResourceVersion = "5" }), false)
	for range times {
		write := patchOf("nodes", "a", "{}", "5")
		write.Namespace, write.Lost = "", lost
		s.writes(write)
	}
	return s
}

// startedAgain is a history in which another client makes nodes start their drivers again.
func startedAgain() *builder {
	s := newBuilder()
	s.run.NewDrivers = true
	return s
}

// upgraded is a history of nodes that wait for their upgrade, one at a time; a and b have slots.
func upgraded() *builder {
	s := newBuilder()
	s.run.MaxParallel = 1
	granted := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		s.step(name, "upgrade-required", "upgrade-required", false)
		if name != "c" {
			granted[name] = `{"uid":"uid-` + name + `"}`
		}
	}
	return s.happens(history.ConfigMap, nil, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: labels.UpgradeSlots, ResourceVersion: "71"}, Data: granted,
	}, false)
}

// upgrades gives a node a state as an upgrade does.
func (s *builder) upgrades(name, state string) *builder {
	return s.step(name, state, state, state != "upgrade-done")
}

// step writes the state of a node, and that of its record.
func (s *builder) step(name, state, recorded string, cordoned bool) *builder {
	var before client.Object
	for _, event := range s.run.Events {
		if event.Name == name {
			before = event.Object
		}
	}
	return s.happens(history.Node, before, node(func(n *corev1.Node) {
		n.Name, n.UID, n.Spec.Unschedulable = name, types.UID("uid-"+name), cordoned
		n.Labels = map[string]string{labels.UpgradeState: state}
		n.Annotations = map[string]string{labels.UpgradeRecord: `{"state":"` + recorded + `"}`}
	}), false)
}

func called(verb, resource string, code int32) *builder {
	s := newBuilder()
	s.run.Calls = cluster.Calls{{Verb: verb, Resource: resource, Code: code}}
	return s
}

// creates is a creation of a pod that the operator requests.
func (s *builder) creates(name string) *builder {
	s.run.Calls = append(s.run.Calls,
		cluster.Call{Verb: "create", Resource: "pods", Namespace: "ns", Name: name, Code: 201})
	return s
}

// deletes is a deletion of a pod that the operator requests.
func (s *builder) deletes(of *corev1.Pod) *builder {
	s.run.Calls = append(s.run.Calls,
		cluster.Call{Verb: "delete", Resource: "pods", Namespace: of.Namespace, Name: of.Name, Code: 200})
	s.run.MayGo = func(string, string) bool { return true }
	return s.happens(history.Pod, of, of, true)
}

func slotsDeleted(version string) fault.Record {
	write := patchOf("configmaps", labels.UpgradeSlots,
		`{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"resourceVersion":"`+version+`"}}`, "")
	write.Verb = fault.Delete
	return write
}

// TestOnlyTheNodeThatChanged: a change of one node causes no write to another.
func TestOnlyTheNodeThatChanged(t *testing.T) {
	g := NewWithT(t)
	s := newBuilder().wait(1).writes(patchOf("nodes", "a", "{}", "")).writes(patchOf("nodes", "b", "{}", ""))
	s.run.Only, s.run.Since = []string{"a"}, time.Unix(1000, 0)
	g.Expect(Judge(s.run)).To(ConsistOf(And(HaveField("ID", "S12"), HaveField("Object", "Node b"))))
}

// TestSeedsStay: objects of users must be the same at every revision.
func TestSeedsStay(t *testing.T) {
	g := NewWithT(t)
	seed := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "seed", UID: types.UID("1")}, Data: map[string]string{"a": "1"},
	}
	key := history.Key{Kind: history.ConfigMap, Namespace: "ns", Name: "seed"}
	for _, gone := range []bool{true, false} {
		s := newBuilder()
		s.run.Begin[key], s.run.Seeds = seed, []history.Key{key}
		later := seed.DeepCopy()
		if !gone {
			later.Data["a"] = "2"
		}
		s.happens(history.ConfigMap, seed, later, gone)
		g.Expect(Judge(s.run)).To(ConsistOf(HaveField("ID", "S8")))
	}
}

// TestTheTimeThatCounts: time in which the operator cannot observe changes does not count as delay.
func TestTheTimeThatCounts(t *testing.T) {
	g := NewWithT(t)
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	r := &Run{Blind: []Interval{{at(5), at(10)}, {at(20), at(30)}}}
	g.Expect(r.sighted(at(0), at(25))).To(Equal(15 * time.Second))
	g.Expect(r.sighted(at(6), at(7))).To(BeZero())
}

// TestTheTableIsComplete: each invariant is checked.
func TestTheTableIsComplete(t *testing.T) {
	g := NewWithT(t)
	var ids []string
	for _, i := range Table() {
		ids = append(ids, i.ID)
		ways := 0
		for _, way := range []bool{i.ByRunner, i.check != nil} {
			if way {
				ways++
			}
		}
		g.Expect(ways).To(Equal(1), i.ID)
	}
	g.Expect(ids).To(HaveLen(17 + 9))
}
