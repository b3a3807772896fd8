package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// recordInSync records that a round found no difference.
func recordInSync(table *table, seen *comparison) {
	c, _ := table.enqueue(key(seen.rendered), "")
	table.finish(c, outcome{inSync: seen})
}

// An unchanged object is compared once, and again after each change that matters.
func TestInSync(t *testing.T) {
	meta := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: "driver", Namespace: "gpu-operator", UID: "uid", ResourceVersion: "1", Generation: 1,
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
			OwnerReferences: []metav1.OwnerReference{{UID: policy}},
		}
	}
	kind := metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}
	intent := &appsv1.DaemonSet{
		TypeMeta:   kind,
		ObjectMeta: metav1.ObjectMeta{Name: "driver", Namespace: "gpu-operator"},
	}
	tests := map[string]struct {
		change func(ds *appsv1.DaemonSet)
		inSync bool
	}{
		"nothing":           {func(*appsv1.DaemonSet) {}, true},
		"the status":        {func(ds *appsv1.DaemonSet) { ds.ResourceVersion, ds.Status.NumberReady = "2", 5 }, true},
		"the spec":          {func(ds *appsv1.DaemonSet) { ds.Generation = 2 }, false},
		"a label":           {func(ds *appsv1.DaemonSet) { ds.Labels["a"] = "" }, false},
		"no labels":         {func(ds *appsv1.DaemonSet) { ds.Labels = nil }, false},
		"annotations":       {func(ds *appsv1.DaemonSet) { delete(ds.Annotations, "c") }, false},
		"the owner":         {func(ds *appsv1.DaemonSet) { ds.OwnerReferences[0].UID = "other" }, false},
		"no owner":          {func(ds *appsv1.DaemonSet) { ds.OwnerReferences = nil }, false},
		"it is re-created":  {func(ds *appsv1.DaemonSet) { ds.UID = "another" }, false},
		"it is terminating": {func(ds *appsv1.DaemonSet) { ds.DeletionTimestamp = &metav1.Time{} }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			table := newTable(clock.RealClock{}, time.Second, time.Second)
			live := &appsv1.DaemonSet{ObjectMeta: meta()}
			g.Expect(table.isInSync(comparisonOf(policy, intent, live))).To(BeFalse(), "there is no record yet")
			recordInSync(table, comparisonOf(policy, intent, live))
			changed := live.DeepCopy()
			test.change(changed)
			g.Expect(table.isInSync(comparisonOf(policy, intent, changed))).To(Equal(test.inSync))
			g.Expect(table.isInSync(comparisonOf("another policy", intent, live))).To(BeFalse())
			g.Expect(table.isInSync(comparisonOf(policy, intent.DeepCopy(), live))).
				To(BeFalse(), "another object may have another content")
			g.Expect(table.isInSync(comparisonOf(policy, intent, live))).To(BeTrue())
		})
	}
}

// Objects without a generation are compared once per resource version.
func TestInSyncWithoutGenerations(t *testing.T) {
	g := NewWithT(t)
	table := newTable(clock.RealClock{}, time.Second, time.Second)
	intent := configMap("a")
	live := configMap("a", func(c *corev1.ConfigMap) { c.UID, c.ResourceVersion = types.UID("uid"), "1" })
	recordInSync(table, comparisonOf(policy, intent, live))
	g.Expect(table.isInSync(comparisonOf(policy, intent, live))).To(BeTrue())
	live.ResourceVersion = "2"
	g.Expect(table.isInSync(comparisonOf(policy, intent, live))).To(BeFalse())
}

// Drift after a round without differences is repaired, and a conflict is returned each time.
func TestApplyAllComparesAgainAfterChanges(t *testing.T) {
	g := NewWithT(t)
	intent := configMap("a")
	c := newCluster(t, applied(t, intent))
	applier := c.applier()
	for range 2 {
		g.Expect(applyOne(applier, intent)).To(BeFalse())
	}
	g.Expect(c.writes()).To(BeEmpty())
	broken := c.get(t, "a")
	broken.Data = map[string]string{"key": "broken"}
	g.Expect(c.WithWatch.Update(t.Context(), broken)).To(Succeed())
	g.Expect(applyOne(applier, intent)).To(BeTrue())
	g.Expect(c.get(t, "a").Data).To(Equal(intent.Data))

	foreign := configMap("b", ownedBy("another"), func(c *corev1.ConfigMap) { c.Labels = nil })
	c = newCluster(t, foreign)
	applier = c.applier()
	for range 2 {
		_, err := applyOne(applier, configMap("b"))
		g.Expect(err).To(MatchError(ErrConflict))
	}
	g.Expect(applier.RetryAfter()).To(BeZero(), "a retry would not help")
}

// Losing the table, as a restart does, costs a comparison or one early write.
func TestTableMayBeLost(t *testing.T) {
	tests := map[string]struct {
		prepare func(c *cluster)
		// stale: the cache shows none of the writes.
		stale bool
		// cost of the loss in writes.
		cost int
	}{
		"in sync":                                {prepare: func(*cluster) {}},
		"the cache does not show the last write": {prepare: func(*cluster) {}, stale: true, cost: 1},
		"in back-off": {
			prepare: func(c *cluster) { c.failWith = errors.New("refused") },
			cost:    1,
		},
		"altered, in back-off": {
			prepare: func(c *cluster) { c.before = mutateKey("altered") },
			cost:    1,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				old := applied(t, configMap("a"))
				old.Data["key"] = "drift"
				server := newCluster(t, old)
				test.prepare(server)
				applier, intent := server.applier(), configMap("a")
				if test.stale {
					applier.client = laggingClient{Client: server, cache: newCluster(t, old)}
				}
				rounds := func() (last string) {
					for range 5 {
						wrote, err := applyOne(applier, intent)
						last = fmt.Sprint(wrote, err)
					}
					return last
				}
				before := rounds()
				g.Expect(server.writes()).To(HaveLen(1))
				applier.table = newTable(clock.RealClock{}, time.Second, 15*time.Second)
				g.Expect(rounds()).To(Equal(before))
				g.Expect(server.writes()).To(HaveLen(1 + test.cost))
			})
		})
	}
}

// Records of removed objects are dropped, whether or not the objects could be written. Time stands still while a round
// works: on a busy machine a call may last longer than its round, whereupon its record stays for one more.
func TestTableIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := newCluster(t)
		c.before = func(_ context.Context, o *unstructured.Unstructured) error {
			if strings.HasSuffix(o.GetName(), "7") {
				return errors.New("refused")
			}
			return nil
		}
		applier := c.applier()
		lasting := configMap("lasting")
		largest := 0
		for i := range 5 * keptRounds {
			applier.ApplyAll(t.Context(), policy, []client.Object{lasting, configMap(fmt.Sprintf("pool-%d", i))})
			largest = max(largest, len(applier.table.records))
		}
		g.Expect(largest).To(BeNumerically("<=", keptRounds+1))
		for range keptRounds {
			applier.ApplyAll(t.Context(), policy, []client.Object{lasting})
		}
		g.Expect(applier.table.records).To(HaveLen(1))
		g.Expect(applier.table.records).To(HaveKey(key(lasting)))
	})
}

// The retry of an object that is no longer applied is not waited for.
func TestRetryAfterIgnoresObjectsNoLongerApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := newCluster(t)
		c.failWith = errors.New("refused")
		applier := c.applier()
		g.Expect(applier.RetryAfter()).To(BeZero())
		_, err := applyOne(applier, configMap("a"))
		g.Expect(err).To(HaveOccurred())
		g.Expect(applier.RetryAfter()).To(Equal(time.Second))
		time.Sleep(400 * time.Millisecond)
		g.Expect(applier.RetryAfter()).To(Equal(600 * time.Millisecond))
		time.Sleep(600 * time.Millisecond)
		g.Expect(applier.RetryAfter()).To(Equal(time.Second), "it became due after the round of this pass")
		time.Sleep(16 * time.Second)
		g.Expect(applier.RetryAfter()).To(BeZero())
	})
}
