package clusterpolicy

import (
	"context"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// pluginOn returns the DaemonSet of the device plugin of the operator, or of NVIDIA's, with this number of nodes and
// updated pods.
func pluginOn(theirs bool, nodes, updated int32) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "plugin", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "nvidia.com/v1", Kind: "ClusterPolicy", UID: "policy", Controller: new(true)},
		}},
		Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: nodes, UpdatedNumberScheduled: updated},
	}
	if !theirs {
		ds.Annotations = map[string]string{"nvidia.com/gpu-operator.digest": "1"}
	}
	return ds
}

// ConfigMaps that NVIDIA's operator may have left are listed once all of its pods are replaced, and again only after
// another DaemonSet of it: not each time when nodes join or pods are replaced.
func TestLeftConfigMapsAreListedOnce(t *testing.T) {
	g, lists := NewWithT(t), 0
	live := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			lists++
			return nil
		},
	}).Build()
	r := New(Options{Live: live, Timing: DefaultTiming()})
	for i, step := range []struct {
		what  string
		now   *appsv1.DaemonSet
		lists int
	}{
		{"NVIDIA's DaemonSet", pluginOn(true, 3, 3), 0},
		{"its pods are being replaced", pluginOn(false, 3, 2), 0},
		{"they are replaced", pluginOn(false, 3, 3), 1},
		{"nothing changes", pluginOn(false, 3, 3), 1},
		{"a node has joined", pluginOn(false, 4, 3), 1},
		{"its pod is there", pluginOn(false, 4, 4), 1},
		{"another DaemonSet of NVIDIA's", pluginOn(true, 4, 4), 1},
		{"it is taken over", pluginOn(false, 4, 0), 1},
		{"its pods are replaced", pluginOn(false, 4, 4), 2},
	} {
		s := &scope{
			Reconciler: r, policy: &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{UID: types.UID("policy")}},
			snapshot: observe.Snapshot{DaemonSets: map[string]*appsv1.DaemonSet{"plugin": step.now}},
			objects:  map[operand.Name][]manifest.Object{"device-plugin": {pluginOn(false, 0, 0)}},
		}
		s.pruneLeft(t.Context())
		g.Expect(s.err).NotTo(HaveOccurred())
		g.Expect(lists).To(Equal(step.lists), "step %d: %s", i+1, step.what)
	}
}

// leftBy returns a ConfigMap or the like of the namespace, as NVIDIA's operator leaves it for this owner.
func leftBy(owner types.UID, name string) metav1.ObjectMeta {
	of := namespaced(name)
	of.UID, of.Annotations = types.UID(name), map[string]string{labels.NVIDIAHash: "1"}
	of.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "nvidia.com/v1", Kind: "ClusterPolicy", Name: "policy", UID: owner, Controller: new(true),
	}}
	return of
}

// Only what NVIDIA's operator has left is deleted, once its pods are replaced, and again after a failure.
func TestWhatIsLeftIsDeleted(t *testing.T) {
	configMap := func(owner types.UID, name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: leftBy(owner, name)}
	}
	ours := configMap(policyUID, "nvidia-mig-manager-entrypoint")
	ours.Labels = map[string]string{labels.Operand: "mig-manager"}
	elsewhere := configMap(policyUID, "nvidia-device-plugin-entrypoint")
	elsewhere.Namespace = "elsewhere"
	all := []client.Object{
		configMap(policyUID, "default-gpu-clients"), configMap(policyUID, "default-mig-parted-config"), ours, elsewhere,
		configMap("another", "nvidia-container-toolkit-entrypoint"), configMap(policyUID, "of-a-user"),
	}
	const first, second = "delete ConfigMap default-gpu-clients", "delete ConfigMap default-mig-parted-config"
	replaced, behind := pluginOn(false, 3, 3), pluginOn(false, 3, 3)
	old, onDelete := pluginOn(false, 3, 2), pluginOn(false, 3, 2)
	behind.Generation = 2
	onDelete.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	for name, test := range map[string]struct {
		live     *appsv1.DaemonSet
		nothing  bool
		before   error
		fails    string
		failure  string
		writes   []string
		finished bool
	}{
		"replaced":              {live: replaced, writes: []string{first, second}, finished: true},
		"not replaced":          {live: old},
		"not observed":          {live: behind},
		"replaced when deleted": {live: onDelete, writes: []string{first, second}, finished: true},
		"without DaemonSets":    {live: replaced, nothing: true},
		"after a failure":       {live: replaced, before: errInjected, failure: errInjected.Error()},
		"when a deletion fails": {
			live: replaced, fails: "delete ConfigMap", writes: []string{first}, failure: "default-gpu-clients",
		},
		"when it cannot be listed": {
			live: replaced, fails: "live list ConfigMap",
			failure: "listing ConfigMaps that NVIDIA's operator may have left: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, all...)
			s := u.scope()
			s.err = test.before
			s.snapshot.DaemonSets = map[string]*appsv1.DaemonSet{"plugin": test.live}
			if !test.nothing {
				s.objects["device-plugin"] = []manifest.Object{pluginOn(false, 0, 0)}
			}
			if test.fails != "" {
				u.failOnce(test.fails, 1)
			}
			s.pruneLeft(u.context())
			u.Expect(u.takeWrites()).To(Equal(test.writes))
			u.Expect(u.leftPruned).To(Equal(test.finished))
			if test.failure == "" {
				u.Expect(s.err).NotTo(HaveOccurred())
				return
			}
			u.Expect(s.err).To(And(MatchError(errInjected), MatchError(ContainSubstring(test.failure))))
		})
	}
}

// DaemonSets of NVIDIA's operator are deleted that run nowhere and that this operator has none for. Those of
// NVIDIADriver objects are not in the cache.
func TestUnneededDaemonSetsAreDeleted(t *testing.T) {
	theirs := func(owner types.UID, name string, nodes int32) *appsv1.DaemonSet {
		ds := &appsv1.DaemonSet{ObjectMeta: leftBy(owner, name)}
		ds.Labels = map[string]string{labels.Component: labels.DriverComponent}
		ds.Status.DesiredNumberScheduled = nodes
		return ds
	}
	ours := theirs(policyUID, "ours", 0)
	ours.Annotations[labels.Digest] = "1"
	for name, test := range map[string]struct {
		objects, takenOver bool
		before             error
		fails              string
		writes             []string
		reads              bool
	}{
		"of the policy": {writes: []string{"delete DaemonSet unneeded"}},
		"also of objects": {
			objects: true, reads: true, writes: []string{"delete DaemonSet driver", "delete DaemonSet unneeded"},
		},
		"objects, taken over":   {objects: true, takenOver: true, writes: []string{"delete DaemonSet unneeded"}},
		"after a failure":       {objects: true, reads: true, before: errInjected},
		"a list that fails":     {objects: true, reads: true, fails: "live list DaemonSet"},
		"a deletion that fails": {fails: "delete DaemonSet", writes: []string{"delete DaemonSet unneeded"}},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, theirs("object", "driver", 0), theirs("object", "busy", 1), theirs("else", "foreign", 0))
			u.driversTakenOver = test.takenOver
			s := u.scope()
			s.err = test.before
			if test.objects {
				s.drivers = []v1alpha1.NVIDIADriver{{ObjectMeta: metav1.ObjectMeta{UID: "object"}}}
			}
			s.snapshot.DaemonSets = map[string]*appsv1.DaemonSet{
				"unneeded": theirs(policyUID, "unneeded", 0), "plugin": theirs(policyUID, "plugin", 0),
				"running": theirs(policyUID, "running", 1), "ours": ours,
			}
			s.objects["device-plugin"] = []manifest.Object{pluginOn(false, 0, 0)}
			if test.fails != "" {
				u.failOnce(test.fails, 1)
			}
			s.pruneLeft(u.context())
			var reads, writes []string
			for _, made := range u.takeCalls() {
				if made.isWrite() {
					writes = append(writes, made.String())
				} else {
					reads = append(reads, made.op)
				}
			}
			slices.Sort(writes)
			u.Expect(writes).To(Equal(test.writes))
			u.Expect(slices.Contains(reads, "live list DaemonSet")).To(Equal(test.reads))
			u.Expect(reads).NotTo(ContainElement("live list ConfigMap"), "their DaemonSets are left")
			u.Expect(s.err != nil).To(Equal(test.before != nil || test.fails != ""), "%v", s.err)
		})
	}
}
