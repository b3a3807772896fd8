package preview

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/drift"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Where the operator runs outside the cluster, as in the demo, what it has applied shows its image and how it serves
// its metrics: they are no change.
func TestAnOperatorWithoutADeployment(t *testing.T) {
	g := NewWithT(t)
	applied := func(name, image string) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "gpu-operator", Name: name,
			Annotations: map[string]string{"nvidia.com/gpu-operator.helper-image": image, labels.Digest: "1"},
			Labels:      map[string]string{labels.ManagedBy: labels.ManagedByValue, labels.Operand: name},
		}}
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "gpu-operator", Name: "gpu-operator", Labels: map[string]string{labels.Operand: "operator-metrics"},
		Annotations: map[string]string{"prometheus.io/scrape": "true"},
	}}
	none := &Cluster{Namespace: "gpu-operator"}
	g.Expect(none.operatorImage()).To(Equal(image.Own()))
	g.Expect(none.metricsEndpoint().Plain).To(BeFalse())

	cluster := &Cluster{Namespace: "gpu-operator"}
	cluster.Objects = append(cluster.Objects, service, applied("a", "example.com/operator:1"),
		applied("b", "example.com/operator:2"), applied("c", "example.com/operator:2"))
	g.Expect(cluster.operatorImage()).To(Equal("example.com/operator:2"))
	// DaemonSets of others, and those without the annotation, do not count.
	for _, name := range []string{"d", "e", "f"} {
		others, before := applied(name, "example.com/operator:3"), applied("of-"+name, "")
		others.Labels = nil
		cluster.Objects = append(cluster.Objects, others, before)
	}
	g.Expect(cluster.operatorImage()).To(Equal("example.com/operator:2"))
	// The mirror is that of the applied policy: an edit may remove it.
	mirroring := *cluster
	mirroring.Objects = []manifest.Object{
		&v1.ClusterPolicy{Spec: v1.ClusterPolicySpec{Global: &v1.GlobalSpec{Registry: "mirror.local"}}},
		applied("a", "mirror.local/clusterpolicy/gpu-operator:2"),
	}
	g.Expect(mirroring.operatorImage()).To(Equal("ghcr.io/clusterpolicy/gpu-operator:2"))
	g.Expect(mirroring.aboutOperator()).To(ConsistOf(ContainSubstring("its image is taken to be " +
		"ghcr.io/clusterpolicy/gpu-operator:2, that of most DaemonSets, mirror.local/clusterpolicy/gpu-operator:2, " +
		"without the mirror of the policy;")))
	mirroring.Objects[1] = applied("a", "mirror.local/team/operator:2")
	g.Expect(mirroring.operatorImage()).To(Equal("mirror.local/team/operator:2"), "it may be no copy")
	g.Expect(cluster.metricsEndpoint().Plain).To(BeTrue())
	service.Labels[labels.Operand] = "dcgm-exporter"
	g.Expect(cluster.metricsEndpoint().Plain).To(BeFalse(), "it is the Service of another operand")
}

// The image of the helpers alone replaces no pod, so that another field is the cause.
func TestCauseOfADifference(t *testing.T) {
	const helper = "example.com/operator:2"
	image := drift.Difference{Path: "spec.template.spec.initContainers[wait].image", Before: "a", After: helper}
	removed := drift.Difference{Path: "spec.template.spec.containers[main].env[MIG_STRATEGY]", Before: "single"}
	variable := drift.Difference{
		Path: "spec.template.spec.containers[main].env[VALIDATOR_IMAGE].value", Before: "a", After: helper,
	}
	selector := drift.Difference{Path: "spec.template.spec.nodeSelector[a]", After: "b"}
	other := drift.Difference{Path: "spec.template.spec.containers[main].image", Before: "a", After: "example.com/main:2"}
	proof := drift.Difference{Path: "spec.minReadySeconds", After: int64(10)}
	for name, test := range map[string]struct {
		all  []drift.Difference
		want string
	}{
		"nothing":                           {nil, ""},
		"the helper alone":                  {[]drift.Difference{image}, ""},
		"the helper in a variable":          {[]drift.Difference{image, variable, selector}, selector.Path},
		"the helper and a removed variable": {[]drift.Difference{image, removed}, removed.Path},
		"the program's image":               {[]drift.Difference{image, other}, other.Path},
		"a field beside the template":       {[]drift.Difference{proof, other}, other.Path},
		"no field of the template":          {[]drift.Difference{proof}, ""},
	} {
		found := difference{all: test.all}
		if got := found.cause(helper); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
