package cleanup_test

import (
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/removal/cleanup"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// cluster returns the objects of testdata/cluster.yaml. replaced are pairs of texts in that file.
func cluster(t *testing.T, replaced ...string) *cleanup.Cluster {
	t.Helper()
	g, c := NewWithT(t), &cleanup.Cluster{Now: now}
	text, err := os.ReadFile("testdata/cluster.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	for i := 0; i < len(replaced); i += 2 {
		g.Expect(string(text)).To(ContainSubstring(replaced[i]))
	}
	for document := range strings.SplitSeq(strings.NewReplacer(replaced...).Replace(string(text)), "\n---\n") {
		object := &unstructured.Unstructured{}
		g.Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
		add(g, c, object)
	}
	return c
}

func add(g *WithT, c *cleanup.Cluster, object *unstructured.Unstructured) {
	convert := func(into any) {
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)).To(Succeed())
	}
	switch object.GetKind() {
	case "ClusterPolicy":
		c.Policies = append(c.Policies, object)
	case "NVIDIADriver":
		c.Drivers = append(c.Drivers, object)
	case "Node":
		c.Nodes = append(c.Nodes, corev1.Node{})
		convert(&c.Nodes[len(c.Nodes)-1])
	case "Pod":
		c.Pods = append(c.Pods, corev1.Pod{})
		convert(&c.Pods[len(c.Pods)-1])
	case "Namespace":
		c.Namespaces = append(c.Namespaces, metav1.PartialObjectMetadata{})
		convert(&c.Namespaces[len(c.Namespaces)-1])
	case "Lease":
		c.Leases = append(c.Leases, coordinationv1.Lease{})
		convert(&c.Leases[len(c.Leases)-1])
	default:
		c.Objects = append(c.Objects, object)
	}
}

func planOf(t *testing.T, c *cleanup.Cluster) *cleanup.Plan {
	t.Helper()
	catalogue, err := operands.Catalogue()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return cleanup.Of(c, catalogue)
}

func TestPlan(t *testing.T) {
	g := NewWithT(t)
	plan := planOf(t, cluster(t))
	var groups [][]string
	for _, group := range plan.DaemonSets {
		var names []string
		for _, object := range group {
			names = append(names, object.String())
		}
		groups = append(groups, names)
	}
	g.Expect(groups).To(Equal([][]string{
		{"DaemonSet gpu-operator/nvidia-dcgm-exporter", "DaemonSet gpu-operator/of-a-later-release"},
		{"DaemonSet gpu-operator/nvidia-container-toolkit-daemonset"},
		{"DaemonSet gpu-operator/nvidia-driver-daemonset"},
	}), "an operand after those that need it; NVIDIA's and a user's are not touched")
	g.Expect(plan.Others).To(Equal([]cleanup.Object{
		{Kind: "ConfigMap", Resource: "configmap", Namespace: "gpu-operator", Name: "gpu-operator-driver-upgrades"},
		{Kind: "NVIDIADriver", Resource: "nvidiadriver.v1alpha1.nvidia.com", Name: "a100"},
		{Kind: "RuntimeClass", Resource: "runtimeclass.v1.node.k8s.io", Name: "nvidia"},
	}))
	g.Expect(plan.Nodes).To(ConsistOf(And(HaveField("Name", "gpu-1"), HaveField("Removal", Not(BeNil())))),
		"gpu-2 is an administrator's")
	g.Expect(plan.Namespaces).To(Equal([]cleanup.Namespace{{
		Name: "gpu-operator", Restored: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"},
	}}))
	g.Expect(plan.Operators).To(BeEmpty(), "the lease has expired, and the pod is not ready")
	g.Expect(plan.Busy).To(Equal([]cleanup.BusyNode{{Name: "gpu-1", Pods: []string{"team-a/shell", "team-a/train-0"}}}),
		"not gpu-2, where nothing of the stack is")
	g.Expect(plan.IsEmpty()).To(BeFalse())
}

// A policy that owns objects is held by the finalizer before it is deleted: the garbage collector knows no order.
func TestPolicies(t *testing.T) {
	const removal, other = "nvidia.com/gpu-operator.removal", "example.com/other"
	for name, test := range map[string]struct {
		replaced []string
		want     cleanup.Policy
	}{
		"without the finalizer": {
			[]string{"finalizers: [" + other + ", " + removal + "]", "finalizers: []"}, cleanup.Policy{Hold: true},
		},
		"of another object": {
			[]string{"finalizers: [" + other + ", " + removal + "]", "", "uid: policy-1}", "uid: policy-2}"}, cleanup.Policy{},
		},
		"with it": {nil, cleanup.Policy{Held: true, Finalizers: []string{other}}},
		"terminating": {
			[]string{"name: cluster-policy\n", "name: cluster-policy\n  deletionTimestamp: \"2026-01-01T11:00:00Z\"\n"},
			cleanup.Policy{Held: true, Terminating: true, Finalizers: []string{other}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, plan := NewWithT(t), planOf(t, cluster(t, test.replaced...))
			test.want.Name, test.want.ResourceVersion = "cluster-policy", "5"
			g.Expect(plan.Policies).To(HaveLen(1))
			got := plan.Policies[0]
			g.Expect(got.Finalizers).To(ConsistOf(test.want.Finalizers))
			got.Finalizers = test.want.Finalizers
			g.Expect(got).To(Equal(test.want))
		})
	}
}

func TestOperatorsAtWork(t *testing.T) {
	const holder, renewed = `holderIdentity: gpu-operator-1_a`, "11:59:40"
	const unready, ready = `{type: Ready, status: "False"}`, `{type: Ready, status: "True"}`
	for name, test := range map[string]struct {
		replaced []string
		want     []string
	}{
		"a lease": {[]string{renewed, "11:59:50"}, []string{
			"lease gpu-operator/53822513.nvidia.com is held by gpu-operator-1_a",
		}},
		"a released lease":     {[]string{renewed, "11:59:50", holder, `holderIdentity: ""`}, nil},
		"the lease of another": {[]string{renewed, "11:59:50", "53822513.nvidia.com", "another"}, nil},
		"a ready pod":          {[]string{unready, ready}, []string{"pod gpu-operator/gpu-operator-1"}},
		"both": {[]string{renewed, "11:59:50", unready, ready}, []string{
			"lease gpu-operator/53822513.nvidia.com is held by gpu-operator-1_a", "pod gpu-operator/gpu-operator-1",
		}},
		"a ready pod of others": {[]string{unready, ready, "component: gpu-operator", "component: other"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(planOf(t, cluster(t, test.replaced...)).Operators).To(Equal(test.want))
		})
	}
}

// The main RuntimeClass of the policy may be another one; pods without GPUs and terminated ones are not users.
func TestBusyNodes(t *testing.T) {
	g := NewWithT(t)
	plan := planOf(t, cluster(t, "runtimeClass: gpu", "runtimeClass: other", "phase: Running", "phase: Succeeded"))
	g.Expect(plan.Busy).To(BeEmpty())
}

func TestTheOrderIsByName(t *testing.T) {
	g, c := NewWithT(t), cluster(t)
	for _, name := range []string{"gpu-0c", "gpu-0b", "gpu-0a"} {
		node, namespace := c.Nodes[0], c.Namespaces[0]
		node.Name, namespace.Name = name, name
		c.Nodes, c.Namespaces = append(c.Nodes, node), append(c.Namespaces, namespace)
		for _, pod := range c.Pods {
			if pod.Name == "train-0" {
				pod.Spec.NodeName = name
				c.Pods = append(c.Pods, pod)
			}
		}
	}
	want, plan := []string{"gpu-0a", "gpu-0b", "gpu-0c", "gpu-1"}, planOf(t, c)
	var nodes, busy, namespaces []string
	for i := range plan.Nodes {
		nodes, busy = append(nodes, plan.Nodes[i].Name), append(busy, plan.Busy[i].Name)
		namespaces = append(namespaces, plan.Namespaces[i].Name)
	}
	g.Expect(nodes).To(Equal(want))
	g.Expect(busy).To(Equal(want))
	want[3] = "gpu-operator"
	g.Expect(namespaces).To(Equal(want))
}

func TestNothingIsLeft(t *testing.T) {
	g := NewWithT(t)
	c := cluster(t)
	rest := &cleanup.Cluster{Pods: c.Pods, Leases: c.Leases, Nodes: c.Nodes[1:], Namespaces: c.Namespaces[1:], Now: now}
	for _, object := range c.Objects {
		if object.GetName() == "nvidias" || object.GetName() == "users" {
			rest.Objects = append(rest.Objects, object)
		}
		if object.GetName() == "gpu-operator-driver-upgrades" {
			renamed, secret, users := object.DeepCopy(), object.DeepCopy(), object.DeepCopy()
			renamed.SetName("other")
			secret.SetKind("Secret")
			users.SetLabels(nil)
			rest.Objects = append(rest.Objects, renamed, secret, users)
		}
	}
	g.Expect(rest.Objects).To(HaveLen(5))
	plan := planOf(t, rest)
	g.Expect(plan.IsEmpty()).To(BeTrue(), "%v", plan)
	for _, some := range []cleanup.Plan{
		{Policies: make([]cleanup.Policy, 1)}, {DaemonSets: make([][]cleanup.Object, 1)},
		{Others: make([]cleanup.Object, 1)}, {Nodes: make([]cleanup.Node, 1)}, {Namespaces: make([]cleanup.Namespace, 1)},
	} {
		g.Expect(some.IsEmpty()).To(BeFalse(), "%v", some)
	}
}
