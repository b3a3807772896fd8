package apply

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A comparison is made once for what it looks at, and again after each change of that.
func TestSettled(t *testing.T) {
	meta := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: "driver", Namespace: "gpu-operator", UID: "uid", ResourceVersion: "1", Generation: 1,
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
			OwnerReferences: []metav1.OwnerReference{{UID: policy}},
		}
	}
	kind := metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}
	intent := &appsv1.DaemonSet{TypeMeta: kind, ObjectMeta: metav1.ObjectMeta{Name: "driver", Namespace: "gpu-operator"}}
	tests := map[string]struct {
		change func(ds *appsv1.DaemonSet)
		holds  bool
	}{
		"nothing":       {func(*appsv1.DaemonSet) {}, true},
		"the status":    {func(ds *appsv1.DaemonSet) { ds.ResourceVersion, ds.Status.NumberReady = "2", 5 }, true},
		"the spec":      {func(ds *appsv1.DaemonSet) { ds.Generation = 2 }, false},
		"a label":       {func(ds *appsv1.DaemonSet) { ds.Labels["a"] = "" }, false},
		"no labels":     {func(ds *appsv1.DaemonSet) { ds.Labels = nil }, false},
		"annotations":   {func(ds *appsv1.DaemonSet) { delete(ds.Annotations, "c") }, false},
		"the owner":     {func(ds *appsv1.DaemonSet) { ds.OwnerReferences[0].UID = "other" }, false},
		"no owner":      {func(ds *appsv1.DaemonSet) { ds.OwnerReferences = nil }, false},
		"it is made":    {func(ds *appsv1.DaemonSet) { ds.UID = "another" }, false},
		"it is leaving": {func(ds *appsv1.DaemonSet) { ds.DeletionTimestamp = &metav1.Time{} }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &settled{}
			live := &appsv1.DaemonSet{ObjectMeta: meta()}
			g.Expect(s.holds(policy, intent, live)).To(BeFalse(), "nothing is known yet")
			s.keep(policy, intent, live)
			changed := live.DeepCopy()
			test.change(changed)
			g.Expect(s.holds(policy, intent, changed)).To(Equal(test.holds))
			g.Expect(s.holds("another policy", intent, live)).To(BeFalse())
			g.Expect(s.holds(policy, intent.DeepCopy(), live)).To(BeFalse(), "another intent may ask for something else")
			g.Expect(s.holds(policy, intent, live)).To(BeTrue())
			s.forget(intent)
			g.Expect(s.holds(policy, intent, live)).To(BeFalse())
		})
	}
}

// Kinds that count no generations are compared once for each version.
func TestSettledWithoutGenerations(t *testing.T) {
	g := NewWithT(t)
	s := &settled{}
	intent := configMap("a")
	live := configMap("a", func(c *corev1.ConfigMap) { c.UID, c.ResourceVersion = types.UID("uid"), "1" })
	s.keep(policy, intent, live)
	g.Expect(s.holds(policy, intent, live)).To(BeTrue())
	live.ResourceVersion = "2"
	g.Expect(s.holds(policy, intent, live)).To(BeFalse())
}

// What was as it should be is repaired when somebody changes it, and what cannot be taken over is told each time.
func TestApplyLooksAgainAfterChanges(t *testing.T) {
	g := NewWithT(t)
	intent := configMap("a")
	c := newCluster(t, applied(t, intent))
	applier := c.applier()
	for range 2 {
		g.Expect(applier.Apply(t.Context(), policy, intent)).To(BeFalse())
	}
	g.Expect(c.applied).To(BeEmpty())
	broken := c.get(t, "a")
	broken.Data = map[string]string{"key": "broken"}
	g.Expect(c.WithWatch.Update(t.Context(), broken)).To(Succeed())
	g.Expect(applier.Apply(t.Context(), policy, intent)).To(BeTrue())
	g.Expect(c.get(t, "a").Data).To(Equal(intent.Data))

	foreign := configMap("b", ownedBy("somebody"), func(c *corev1.ConfigMap) { c.Labels = nil })
	c = newCluster(t, foreign)
	applier = c.applier()
	for range 2 {
		_, err := applier.Apply(t.Context(), policy, configMap("b"))
		g.Expect(err).To(MatchError(ErrConflict))
	}
}
