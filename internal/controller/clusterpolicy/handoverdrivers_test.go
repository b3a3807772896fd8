package clusterpolicy

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
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
