package migrate_test

import (
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/clusterpolicy/gpu-operator/internal/takeover/migrate"
)

func TestNodesThatAreKept(t *testing.T) {
	const deploy, anchor = "nvidia.com/gpu.deploy.driver", "anchor/driver"
	const hostname = "kubernetes.io/hostname"
	ds := &appsv1.DaemonSet{}
	required := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: anchor, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}},
			{Key: "nvidia.com/gpu-operator.pool", Operator: corev1.NodeSelectorOpDoesNotExist},
		},
	}}}
	ds.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: required,
	}}
	nodes := migrate.Nodes{Deploy: deploy, Anchor: anchor, Hostnames: []string{"a", "b"}}
	if nodes.AreKeptBy(ds) || nodes.AreKeptBy(&appsv1.DaemonSet{}) {
		t.Error("kept without the term")
	}
	nodes.Keep(ds)
	if !nodes.AreKeptBy(ds) {
		t.Error("not kept with the term")
	}
	selector, err := nodeaffinity.NewNodeSelector(required)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"as NVIDIA's operator labels it": {map[string]string{deploy: "true", hostname: "a"}, true},
		"of another DaemonSet":           {map[string]string{deploy: "true", hostname: "c"}, false},
		"without the driver":             {map[string]string{deploy: "false", hostname: "a"}, false},
		"with its anchor":                {map[string]string{anchor: "a"}, true},
		"of another variant":             {map[string]string{deploy: "true", hostname: "a", anchor: "b"}, false},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: test.labels}}
		if got := selector.Match(node); got != test.want {
			t.Errorf("%s: selected %t", name, got)
		}
	}
}

// Where the nodes are not known by name, the term is without them: an empty list of values is refused.
func TestNodesOfAnyName(t *testing.T) {
	ds := &appsv1.DaemonSet{}
	required := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	ds.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: required,
	}}
	migrate.Nodes{Deploy: "deploy", Anchor: "anchor"}.Keep(ds)
	terms := required.NodeSelectorTerms
	want := []corev1.NodeSelectorRequirement{
		{Key: "deploy", Operator: "In", Values: []string{"true"}},
		{Key: "nvidia.com/gpu-operator.pool", Operator: "DoesNotExist"}, {Key: "anchor", Operator: "DoesNotExist"},
	}
	if got := terms[len(terms)-1].MatchExpressions; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}
