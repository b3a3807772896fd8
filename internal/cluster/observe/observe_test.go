package observe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

func TestFacts(t *testing.T) {
	const nfd = "feature.node.kubernetes.io/"
	node := func(labels map[string]string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels},
			Status: corev1.NodeStatus{
				NodeInfo: corev1.NodeSystemInfo{Architecture: "amd64", ContainerRuntimeVersion: "containerd://2.2.1"},
			},
		}
	}
	facts := func(change func(*nodeinfo.Facts)) nodeinfo.Facts {
		f := nodeinfo.Facts{
			Name: "a", Architecture: "amd64", Runtime: "containerd", RuntimeVersion: "2.2.1",
			Deploy: map[string]string{},
		}
		change(&f)
		return f
	}
	discovered := func(f *nodeinfo.Facts) { f.HasGPU, f.HasDiscoveryLabels = true, true }
	tests := map[string]struct {
		labels map[string]string
		want   nodeinfo.Facts
	}{
		"no labels":             {want: facts(func(*nodeinfo.Facts) {})},
		"a device of any class": {labels: map[string]string{nfd + "pci-10de.present": "true"}, want: facts(discovered)},
		"a 3D controller": {
			labels: map[string]string{nfd + "pci-0302_10de.present": "true"},
			want:   facts(discovered),
		},
		"a VGA controller": {
			labels: map[string]string{nfd + "pci-0300_10de.present": "true"},
			want:   facts(discovered),
		},
		"a removed device": {
			labels: map[string]string{nfd + "pci-10de.present": "false"},
			want:   facts(func(f *nodeinfo.Facts) { f.HasDiscoveryLabels = true }),
		},
		"a GPU of another vendor": {
			labels: map[string]string{nfd + "pci-1002.present": "true"},
			want:   facts(func(f *nodeinfo.Facts) { f.HasDiscoveryLabels = true }),
		},
		"Red Hat CoreOS in its pool": {
			labels: map[string]string{
				nfd + "system-os_release.ID": "rhcos", nfd + "system-os_release.OSTREE_VERSION": "418.94.1-0",
				"nvidia.com/gpu-operator.pool": "rhcos4.18-amd64-418.94.1-0", "nvidia.com/gpu-operator.pool-coreos": "418.94.1-0",
			},
			want: facts(func(f *nodeinfo.Facts) {
				f.HasDiscoveryLabels, f.OSID, f.OSTree = true, "rhcos", "418.94.1-0"
				f.Pool, f.PoolCoreOS = "rhcos4.18-amd64-418.94.1-0", "418.94.1-0"
			}),
		},
		"in the pool of a kernel": {
			labels: map[string]string{
				"nvidia.com/gpu-operator.pool": "a-6.8.0", "nvidia.com/gpu-operator.pool-kernel": "6.8.0",
			},
			want: facts(func(f *nodeinfo.Facts) { f.Pool, f.PoolKernel = "a-6.8.0", "6.8.0" }),
		},
		"a former GPU node": {
			labels: map[string]string{"nvidia.com/gpu.present": "true"},
			want:   facts(func(f *nodeinfo.Facts) { f.WasGPU = true }),
		},
		"a released node": {
			labels: map[string]string{"nvidia.com/gpu.present": "false"}, want: facts(func(*nodeinfo.Facts) {}),
		},
		"the operating system and the labels of the stack": {
			labels: map[string]string{
				nfd + "system-os_release.ID":         "ubuntu",
				nfd + "system-os_release.VERSION_ID": "24.04",
				nfd + "kernel-version.full":          "6.8.0",
				"nvidia.com/gpu-operator.pool":       "ubuntu24.04-amd64",
				"nvidia.com/gpu.deploy.driver":       "pre-installed",
			},
			want: facts(func(f *nodeinfo.Facts) {
				f.HasDiscoveryLabels, f.OSID, f.OSVersion, f.Kernel, f.Pool = true, "ubuntu", "24.04", "6.8.0", "ubuntu24.04-amd64"
				f.Deploy["driver"] = "pre-installed"
			}),
		},
		"the distribution, and the label that the operator derives from it": {
			labels: map[string]string{"microk8s.io/cluster": "true", "nvidia.com/gpu-operator.runtime": "microk8s"},
			want:   facts(func(f *nodeinfo.Facts) { f.Distribution, f.Layout = "microk8s", "microk8s" }),
		},
		"its workload": {
			labels: map[string]string{"nvidia.com/gpu.workload.config": "vm-vgpu"},
			want:   facts(func(f *nodeinfo.Facts) { f.Workload = "vm-vgpu" }),
		},
		"excluded by a user": {
			labels: map[string]string{"nvidia.com/gpu.deploy.operands": "false"},
			want:   facts(func(f *nodeinfo.Facts) { f.ExcludedByLabel, f.Deploy["operands"] = true, "false" }),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.want.Labels = test.labels
			if diff := cmp.Diff(test.want, observe.Facts(node(test.labels))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

var now = time.Unix(1_000_000, 0)

func affinityTo(node string) *corev1.Affinity {
	return &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			}}},
		}},
	}
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func TestCluster(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "ds", Namespace: "gpu-operator"}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "default"}},
	).Build()
	snapshot, err := observe.ReadSnapshot(t.Context(), c, "gpu-operator")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(snapshot.DaemonSets).To(And(HaveLen(1), HaveKeyWithValue("ds", HaveField("Name", "ds"))))
	g.Expect(snapshot.CRDs).To(BeEmpty())
}

func TestPodsOnNode(t *testing.T) {
	pod := func(name, namespace, node, operandName string, age time.Duration) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: namespace, CreationTimestamp: metav1.NewTime(now.Add(-age)),
				Labels: map[string]string{"nvidia.com/gpu-operator.operand": operandName},
			},
			Spec: corev1.PodSpec{NodeName: node},
		}
	}
	unplaced := pod("unplaced", "gpu-operator", "", "driver", 0)
	unplaced.Spec.Affinity = affinityTo("b")
	deleted := pod("deleted", "gpu-operator", "a", "device-plugin", 0)
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: now}, []string{"x/y"}
	c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(
		pod("old", "gpu-operator", "a", "driver", time.Hour), pod("young", "gpu-operator", "a", "driver", time.Minute),
		pod("staying", "gpu-operator", "a", "device-plugin", time.Hour), deleted,
		pod("elsewhere", "default", "a", "driver", 0), pod("not an operand", "gpu-operator", "a", "", 0), unplaced,
	).WithIndex(&corev1.Pod{}, observe.PodNodeField, observe.IndexPodNode).Build()
	for node, want := range map[string]map[operand.Name]string{
		"a": {"driver": "young", "device-plugin": "staying"}, "b": {"driver": "unplaced"}, "c": {},
	} {
		pods, err := observe.PodsOnNode(t.Context(), c, "gpu-operator", node)
		if err != nil {
			t.Fatal(err)
		}
		got := map[operand.Name]string{}
		for name, p := range pods.Operands {
			got[name] = p.Name
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("node %s: -want +got:\n%s", node, diff)
		}
	}
}

// Errors state what could not be read.
func TestErrorsStateWhatCouldNotBeRead(t *testing.T) {
	failing := func(fails func(client.ObjectList) bool) client.Client {
		return fake.NewClientBuilder().WithScheme(newScheme(t)).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if fails(list) {
					return errors.New("no cache")
				}
				return c.List(ctx, list, options...)
			},
		}).Build()
	}
	all := func(client.ObjectList) bool { return true }
	crds := func(list client.ObjectList) bool {
		_, is := list.(*metav1.PartialObjectMetadataList)
		return is
	}
	tests := map[string]func() error{
		"listing DaemonSets": func() error {
			_, err := observe.ReadSnapshot(t.Context(), failing(all), "gpu-operator")
			return err
		},
		"listing CustomResourceDefinitions": func() error {
			_, err := observe.ReadSnapshot(t.Context(), failing(crds), "gpu-operator")
			return err
		},
		"listing pods of node a": func() error {
			_, err := observe.PodsOnNode(t.Context(), failing(all), "gpu-operator", "a")
			return err
		},
		"listing the driver DaemonSets": func() error {
			_, err := observe.DriverDaemonSets(t.Context(), failing(all), "gpu-operator")
			return err
		},
		"listing the failed pods of node a": func() error {
			_, err := observe.RefusedPods(t.Context(), failing(all), "a", "gpu-operator", now)
			return err
		},
		"listing pods": func() error {
			_, err := observe.HasUnlabelledPod(t.Context(), failing(all), "gpu-operator", nil)
			return err
		},
		"listing ClusterPolicies": func() error {
			_, _, err := observe.Policies(t.Context(), failing(all))
			return err
		},
	}
	for what, read := range tests {
		t.Run(what, func(t *testing.T) {
			NewWithT(t).Expect(read()).To(MatchError(what + ": no cache"))
		})
	}
}

func TestDriverDaemonSets(t *testing.T) {
	g, objects := NewWithT(t), fake.NewClientBuilder().WithScheme(newScheme(t))
	for name, of := range map[string][2]string{
		"nvidia-driver": {"gpu-operator", "nvidia-driver"}, "dcgm": {"gpu-operator", "dcgm"}, "copy": {"b", "nvidia-driver"},
	} {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: of[0], Name: name}}
		ds.Labels = map[string]string{"app.kubernetes.io/component": of[1]}
		objects.WithObjects(ds)
	}
	g.Expect(observe.DriverDaemonSets(t.Context(), objects.Build(), "gpu-operator")).
		To(ConsistOf(HaveField("Name", "nvidia-driver")))
}

func TestOnePolicyIsActive(t *testing.T) {
	policy := func(name string, age time.Duration) *v1.ClusterPolicy {
		return &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age))}}
	}
	deleted := policy("deleted", time.Hour)
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: now}, []string{"x/y"}
	undecodable := func(name string, age time.Duration, finalizers ...string) *v1.ClusterPolicy {
		object := policy(name, age)
		object.Annotations = map[string]string{"nvidia.com/gpu-operator.undecodable": "cannot be decoded"}
		object.Finalizers = finalizers
		return object
	}
	kept := func(name string, age time.Duration) *v1.ClusterPolicy {
		object := policy(name, age)
		object.Finalizers = []string{"nvidia.com/gpu-operator.removal"}
		return object
	}
	tests := map[string]struct {
		policies []client.Object
		want     string
	}{
		"none":                        {},
		"one":                         {policies: []client.Object{policy("a", 0)}, want: "a"},
		"the older of two":            {policies: []client.Object{policy("a", 0), policy("b", time.Minute)}, want: "b"},
		"of the same second, by name": {policies: []client.Object{policy("b", 0), policy("a", 0)}, want: "a"},
		"one is being deleted":        {policies: []client.Object{deleted, policy("a", 0)}, want: "a"},
		"the oldest cannot be decoded": {
			policies: []client.Object{undecodable("b", time.Hour), policy("a", time.Minute), policy("c", 0)}, want: "a",
		},
		"the oldest cannot be decoded any more": {
			policies: []client.Object{undecodable("b", time.Hour, "nvidia.com/gpu-operator.removal"), policy("a", 0)}, want: "b",
		},
		"an older one is corrected": {
			policies: []client.Object{policy("b", time.Hour), kept("a", 0)}, want: "a",
		},
		"the active one cannot be decoded any more, and an older one is corrected": {
			policies: []client.Object{policy("b", time.Hour), undecodable("a", 0, "nvidia.com/gpu-operator.removal")},
			want:     "a",
		},
		"two have been active": {
			policies: []client.Object{undecodable("b", time.Hour, "nvidia.com/gpu-operator.removal"), kept("a", 0)}, want: "b",
		},
		"none can be decoded": {
			policies: []client.Object{undecodable("b", time.Hour), undecodable("c", time.Minute)}, want: "b",
		},
		"the only one is being deleted": {policies: []client.Object{deleted}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(test.policies...).Build()
			active, all, err := observe.Policies(context.Background(), c)
			if err != nil || len(all) != len(test.policies) {
				t.Fatalf("%d of %d policies, %v", len(all), len(test.policies), err)
			}
			got := ""
			if active != nil {
				got = active.Name
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
