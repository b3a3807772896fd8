package preview

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// Only the edit of the policy that the operator would apply has a preview.
func TestEditsOfTheActivePolicy(t *testing.T) {
	policy := func(name string, age time.Duration, change ...func(*v1.ClusterPolicy)) manifest.Object {
		found := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age)),
		}}
		for _, do := range change {
			do(found)
		}
		return found
	}
	finalized := func(p *v1.ClusterPolicy) { p.Finalizers = []string{labels.RemovalFinalizer} }
	deleted := func(p *v1.ClusterPolicy) { p.DeletionTimestamp = &metav1.Time{Time: now} }
	undecodable := func(p *v1.ClusterPolicy) { p.Annotations = map[string]string{labels.Undecodable: "spec"} }
	const none, other = "the cluster has no ClusterPolicy: apply one, or give a file by --filename",
		"b is the active ClusterPolicy, and a second one has no effect: give that one"
	for name, test := range map[string]struct {
		live []manifest.Object
		edit manifest.Object
		// references: the error is one of References, too.
		want       string
		references bool
	}{
		"no policy":                  {want: none, references: true},
		"no policy that stays":       {live: []manifest.Object{policy("a", 1, deleted)}, want: none, references: true},
		"the one of the cluster":     {live: []manifest.Object{policy("a", 1)}},
		"the first":                  {edit: policy("a", 0)},
		"a second":                   {live: []manifest.Object{policy("b", 1)}, edit: policy("a", 0), want: other},
		"a second of a greater name": {live: []manifest.Object{policy("b", 1)}, edit: policy("c", 9), want: other},
		"the older":                  {live: []manifest.Object{policy("a", 2), policy("b", 1)}, edit: policy("a", 0)},
		"the younger": {
			live: []manifest.Object{policy("a", 1), policy("b", 2)}, edit: policy("a", 0), want: other,
		},
		"beside one that is deleted": {live: []manifest.Object{policy("b", 1, deleted)}, edit: policy("a", 0)},
		"one that is deleted": {
			live: []manifest.Object{policy("a", 2, deleted), policy("b", 1)}, edit: policy("a", 0), want: other,
		},
		"with the finalizer": {
			live: []manifest.Object{policy("a", 1, finalized), policy("b", 2)}, edit: policy("a", 0),
		},
		"beside one with the finalizer": {
			live: []manifest.Object{policy("a", 2), policy("b", 1, finalized)}, edit: policy("a", 0), want: other,
		},
		"of a policy that was undecodable": {
			live: []manifest.Object{policy("a", 2, undecodable), policy("b", 1)}, edit: policy("a", 0),
		},
		"that is undecodable": {
			live: []manifest.Object{policy("b", 1)}, edit: policy("a", 0, undecodable), want: other,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster, edit := &Cluster{Namespace: namespace, Objects: test.live}, Edit{}
			if given, isPolicy := test.edit.(*v1.ClusterPolicy); isPolicy {
				edit.Policy = given
			}
			found, err := Of(cluster, edit, now)
			_, errReferences := References(cluster, edit)
			_, errRender := Render(cluster, edit, now)
			if test.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(errReferences).NotTo(HaveOccurred())
				g.Expect(errRender).NotTo(HaveOccurred())
				g.Expect(found.Policy).To(Equal("a"))
				return
			}
			g.Expect(err).To(MatchError(test.want))
			g.Expect(errRender).To(MatchError(test.want))
			if test.references {
				g.Expect(errReferences).To(MatchError(test.want))
			}
		})
	}
}

// What an operator has written on a node does not count for a first installation.
func TestNodesBeforeAFirstInstallation(t *testing.T) {
	g := NewWithT(t)
	catalogue, err := operands.Catalogue()
	g.Expect(err).NotTo(HaveOccurred())
	c := previewCase{from: "none", to: spec1}
	cluster, edit := c.cluster(t)
	in, _ := cluster.input(catalogue, edit)
	decisions := plan.Decide(catalogue, in)
	discovered := of[*corev1.Node](cluster)[0]
	delete(discovered.Labels, labels.Pool)
	delete(discovered.Labels, labels.UpgradeState)
	before := discovered.DeepCopy()

	settled := Settled(decisions, discovered)
	g.Expect(discovered).To(Equal(before), "a copy is changed")
	g.Expect(settled.Labels).To(And(
		HaveKeyWithValue(labels.Pool, "ubuntu24.04-amd64"), HaveKeyWithValue(labels.DeployPrefix+"driver", labels.True),
		HaveKeyWithValue("zone", "front"), Not(HaveKey(labels.MIGConfig)),
	))
	settled.Annotations = map[string]string{labels.ReadyBoot: "b", "note": "kept"}
	written := settled.DeepCopy()
	unwritten := Unwritten(catalogue, settled)
	g.Expect(settled).To(Equal(written), "a copy is changed")
	g.Expect(unwritten.Labels).To(Equal(discovered.Labels))
	g.Expect(unwritten.Annotations).To(Equal(map[string]string{"note": "kept"}))

	g.Expect(Keeps(decisions, settled)).To(BeFalse())
	edit.Policy = policyOf(t, "{driver: {nodeSelector: {zone: rear}}}")
	in, _ = cluster.input(catalogue, edit)
	g.Expect(Keeps(plan.Decide(catalogue, in), settled)).To(BeTrue(), "its driver is not unloaded")
	absent := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}}
	g.Expect(Settled(decisions, absent)).To(Equal(absent))
	g.Expect(Keeps(decisions, absent)).To(BeFalse())
}
