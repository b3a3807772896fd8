package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

const (
	crashNodes = 2
	// sampleStep is the part of the crash points that the short tier tries: every so many.
	sampleStep = 5
)

// TestCrashAtEachWrite kills the operator before and after each of its writes of an installation,
// starts it again, and compares every object with those of an undisturbed run. TEST_FULL=1 tries
// every point, otherwise a fixed sample.
func TestCrashAtEachWrite(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{nodes: crashNodes, timing: simulator.DefaultTiming().Scale(0.2)})
	reference := b.install(crashPoint{})
	writes := int(b.process.lastWrite.Load())
	step := sampleStep
	if cluster.WholeCampaigns() {
		step = 1
	}
	var points []crashPoint
	for ordinal := 1; ordinal <= writes; ordinal++ {
		points = append(points, crashPoint{int64(ordinal), cluster.Before}, crashPoint{int64(ordinal), cluster.After})
	}
	tried, same := 0, 0
	for i := 0; i < len(points); i += step {
		tried++
		if t.Run(points[i].String(), func(t *testing.T) {
			b := b.in(t)
			state := b.install(points[i])
			b.Expect(cmp.Diff(reference, state)).To(BeEmpty(), "objects that differ from the undisturbed run")
		}) {
			same++
		}
	}
	t.Logf("crash points: the same objects at the end %d/%d, of %d points (%d writes, before and after each)", same, tried, len(points), writes)
}

// crashPoint is a moment in the operator's writes; the zero value is none.
type crashPoint struct {
	ordinal int64
	phase   cluster.Phase
}

func (p crashPoint) String() string { return fmt.Sprintf("%s write %d", p.phase, p.ordinal) }

// install runs one installation from an empty cluster to ready, with a crash at this point, and returns
// all objects at the end. It leaves the cluster empty again.
func (b *bed) install(point crashPoint) map[string]string {
	b.t.Helper()
	crashed := make(chan struct{})
	b.process.lastWrite.Store(0)
	proxy, err := b.cluster.NewWriteProxy(func(w cluster.Write) cluster.Verdict {
		b.process.lastWrite.Store(max(b.process.lastWrite.Load(), w.Ordinal))
		if w.Ordinal != point.ordinal || w.Phase != point.phase {
			return cluster.Verdict{}
		}
		b.process.Kill()
		close(crashed)
		return cluster.Verdict{Cut: true}
	})
	b.Expect(err).NotTo(HaveOccurred())
	defer proxy.Close()
	kubeconfig, err := b.cluster.ServiceAccountKubeconfig(b.t.Context(), namespace, account, proxy.URL)
	b.Expect(err).NotTo(HaveOccurred())
	b.runWith(kubeconfig)
	b.create(b.samplePolicy())
	if point.ordinal > 0 {
		b.Eventually(crashed).WithTimeout(time.Minute).Should(BeClosed(), "the run never came to %s", point)
		b.run()
	}
	b.awaitReady(crashNodes)
	state := b.settledState()
	b.stop()
	b.empty()
	return state
}

// settledState returns all objects once they have not changed for some time: counters and the
// conditions of the nodes are written after the policy is ready.
func (b *bed) settledState() map[string]string {
	b.t.Helper()
	var state map[string]string
	since := time.Now()
	b.Eventually(func() time.Duration {
		if now := b.state(); !cmp.Equal(now, state) {
			state, since = now, time.Now()
		}
		return time.Since(since)
	}).WithTimeout(time.Minute).WithPolling(100 * time.Millisecond).Should(BeNumerically(">", 1500*time.Millisecond))
	return state
}

// state is every object that the operator writes, or that follows from it, without what no two runs
// share: identities, versions and times.
func (b *bed) state() map[string]string {
	b.t.Helper()
	state := map[string]string{}
	for _, list := range []client.ObjectList{&v1.ClusterPolicyList{}, &appsv1.DaemonSetList{}, &corev1.ConfigMapList{},
		&nodev1.RuntimeClassList{}, &corev1.NodeList{}} {
		b.Expect(b.client.List(b.t.Context(), list)).To(Succeed())
		b.Expect(meta.EachListItem(list, func(item runtime.Object) error {
			object, isObject := item.(client.Object)
			b.Expect(isObject).To(BeTrue())
			text, err := yaml.Marshal(withoutIdentity(object))
			state[fmt.Sprintf("%T %s", item, object.GetName())] = string(text)
			return err
		})).To(Succeed())
	}
	return state
}

func withoutIdentity(object client.Object) client.Object {
	object.SetUID("")
	object.SetResourceVersion("")
	object.SetCreationTimestamp(metav1.Time{})
	object.SetManagedFields(nil)
	owners := object.GetOwnerReferences()
	for i := range owners {
		owners[i].UID = ""
	}
	object.SetOwnerReferences(owners)
	switch o := object.(type) {
	case *v1.ClusterPolicy:
		for i := range o.Status.Conditions {
			o.Status.Conditions[i].LastTransitionTime = metav1.Time{}
		}
	case *corev1.Node:
		var kept []corev1.NodeCondition
		if condition := nodeCondition(o); condition != nil {
			condition.LastTransitionTime, condition.LastHeartbeatTime = metav1.Time{}, metav1.Time{}
			kept = append(kept, *condition)
		}
		o.Status = corev1.NodeStatus{Conditions: kept, Allocatable: o.Status.Allocatable}
	}
	return object
}

// empty takes the cluster back to before the installation, without waiting for the garbage collector.
func (b *bed) empty() {
	b.t.Helper()
	ctx := b.t.Context()
	b.Expect(b.client.Delete(ctx, b.policy())).To(Succeed())
	owned := client.HasLabels{"nvidia.com/gpu-operator.operand"}
	for _, kind := range []client.Object{&appsv1.DaemonSet{}, &corev1.ConfigMap{}} {
		b.Expect(b.client.DeleteAllOf(ctx, kind, client.InNamespace(namespace), owned)).To(Succeed())
	}
	b.Expect(b.client.DeleteAllOf(ctx, &nodev1.RuntimeClass{}, owned)).To(Succeed())
	nodes := &corev1.NodeList{}
	b.Expect(b.client.List(ctx, nodes)).To(Succeed())
	for i := range nodes.Items {
		b.release(nodes.Items[i].Name)
	}
	b.Eventually(func(g Gomega) {
		pods := &corev1.PodList{}
		g.Expect(b.client.List(ctx, pods, client.InNamespace(namespace))).To(Succeed())
		g.Expect(pods.Items).To(BeEmpty())
		g.Expect(b.leftovers()).To(BeEmpty())
	}).WithTimeout(garbageTime).WithPolling(100 * time.Millisecond).Should(Succeed())
}

// release takes the operator's labels and condition off a node, as an administrator would.
func (b *bed) release(name string) {
	b.t.Helper()
	b.Eventually(func(g Gomega) {
		node := b.node(name)
		for key := range node.Labels {
			if strings.HasPrefix(key, "nvidia.com/") {
				delete(node.Labels, key)
			}
		}
		g.Expect(b.client.Update(b.t.Context(), node)).To(Succeed())
		var others []corev1.NodeCondition
		for _, condition := range node.Status.Conditions {
			if condition.Type != gpuReady {
				others = append(others, condition)
			}
		}
		node.Status.Conditions = others
		g.Expect(b.client.Status().Update(b.t.Context(), node)).To(Succeed())
	}).WithPolling(50 * time.Millisecond).Should(Succeed())
}
