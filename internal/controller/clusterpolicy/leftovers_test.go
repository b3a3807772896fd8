package clusterpolicy

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
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
