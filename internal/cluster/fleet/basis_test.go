package fleet_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

func decide(spec v1.ClusterPolicySpec, catalogue ...operand.Operand) *plan.Decisions {
	return plan.Decide(catalogue, operand.Input{Spec: effective.Of(spec)})
}

// Nodes are assessed again when the Basis differs, and not when only statuses of DaemonSets do.
func TestPublish(t *testing.T) {
	decisions := decide(v1.ClusterPolicySpec{})
	// basis returns a Basis of new objects with equal content, as a pass does.
	basis := func() fleet.Basis {
		return fleet.Basis{
			Policy: &v1.ClusterPolicy{}, Decisions: decisions,
			Stack: assess.Stack{
				DaemonSets: map[string]*appsv1.DaemonSet{"driver": {ObjectMeta: metav1.ObjectMeta{
					Name: "driver", UID: "1", Generation: 3, Labels: map[string]string{labels.Operand: "driver"},
					Annotations: map[string]string{labels.TemplateDigest: "d"},
				}}},
				CreateFailures: map[string]assess.PodFailure{"driver": {Reason: "QuotaExceeded", Message: "x"}},
			},
		}
	}
	driver := func(change func(*appsv1.DaemonSet)) func(*fleet.Basis) {
		return func(b *fleet.Basis) { change(b.Stack.DaemonSets["driver"]) }
	}
	tests := map[string]struct {
		change func(*fleet.Basis)
		want   bool
	}{
		"nothing": {change: func(*fleet.Basis) {}},
		"the status of a DaemonSet": {change: driver(func(ds *appsv1.DaemonSet) {
			ds.ResourceVersion, ds.Status.NumberReady, ds.Status.DesiredNumberScheduled = "9", 3, 3
		})},
		"an annotation of others": {change: driver(func(ds *appsv1.DaemonSet) { ds.Annotations["other"] = "x" })},
		"equal decisions of another pass": {
			change: func(b *fleet.Basis) { b.Decisions = decide(v1.ClusterPolicySpec{}) },
			want:   true,
		},
		"no decisions": {change: func(b *fleet.Basis) { b.Decisions = nil }, want: true},
		"a digest": {
			change: driver(func(ds *appsv1.DaemonSet) { ds.Annotations[labels.TemplateDigest] = "e" }),
			want:   true,
		},
		"a generation":                       {change: driver(func(ds *appsv1.DaemonSet) { ds.Generation++ }), want: true},
		"another DaemonSet of the same name": {change: driver(func(ds *appsv1.DaemonSet) { ds.UID = "2" }), want: true},
		"another operand": {
			change: driver(func(ds *appsv1.DaemonSet) { ds.Labels[labels.Operand] = "dcgm" }),
			want:   true,
		},
		"a deletion": {
			change: driver(func(ds *appsv1.DaemonSet) { ds.DeletionTimestamp = &metav1.Time{Time: begin} }),
			want:   true,
		},
		"a DaemonSet is removed": {change: func(b *fleet.Basis) { b.Stack.DaemonSets = nil }, want: true},
		"a DaemonSet is added": {
			change: func(b *fleet.Basis) { b.Stack.DaemonSets["b"] = &appsv1.DaemonSet{} },
			want:   true,
		},
		"another cause of create failures": {change: func(b *fleet.Basis) {
			b.Stack.CreateFailures["driver"] = assess.PodFailure{Reason: "AdmissionDenied"}
		}, want: true},
		"the removal of the stack": {
			change: func(b *fleet.Basis) { b.Removal = &fleet.Removal{RuntimeClass: "nvidia"} }, want: true,
		},
		"a failure to start": {change: func(b *fleet.Basis) {
			b.Stack.StartFailures = map[types.UID]assess.PodFailure{"p": {Reason: "FailedMount", Message: "x"}}
		}, want: true},
		"create failures are resolved": {change: func(b *fleet.Basis) { b.Stack.CreateFailures = nil }, want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := fleet.New()
			g.Expect(f.Basis()).To(BeNil())
			first := f.Publish(basis(), begin)
			g.Expect(first).To(And(HaveField("Version", uint64(1)), HaveField("Since", begin)))
			g.Expect(f.Published()).To(Receive())
			next := basis()
			test.change(&next)
			second := f.Publish(next, begin.Add(time.Minute))
			g.Expect(f.Basis()).To(BeIdenticalTo(second))
			if !test.want {
				g.Expect(second).To(BeIdenticalTo(first))
				g.Expect(f.Published()).NotTo(Receive())
				return
			}
			g.Expect(second).To(And(HaveField("Version", uint64(2)), HaveField("Since", begin.Add(time.Minute))))
			g.Expect(f.Published()).To(Receive())
			g.Expect(first.Version).To(Equal(uint64(1)), "a published Basis is not modified")
			g.Expect(f.Publish(next, begin.Add(time.Hour))).To(BeIdenticalTo(second))
		})
	}
}

// While the stack is removed, nodes are assessed again when it is to be removed in another way.
func TestPublishRemovals(t *testing.T) {
	for name, test := range map[string]struct {
		next *fleet.Removal
		want uint64
	}{
		"the same":             {&fleet.Removal{RuntimeClass: "nvidia"}, 1},
		"forced":               {&fleet.Removal{RuntimeClass: "nvidia", Force: true}, 2},
		"another RuntimeClass": {&fleet.Removal{RuntimeClass: "gpu"}, 2},
		"none any more":        {nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := fleet.New()
			f.Publish(fleet.Basis{Removal: &fleet.Removal{RuntimeClass: "nvidia"}}, begin)
			got := f.Publish(fleet.Basis{Removal: test.next}, begin)
			NewWithT(t).Expect(got.Version).To(Equal(test.want))
		})
	}
}

// Selects covers all nodeSelectors of the spec.
func TestSelects(t *testing.T) {
	g := NewWithT(t)
	f := fleet.New()
	exporter := operand.Operand{Name: "dcgm-exporter", Placement: func(in operand.Input) operand.Placement {
		return operand.Placement{PlacementSpec: in.Spec.DCGMExporter.PlacementSpec}
	}, Decide: func(operand.Input) operand.Decision { return operand.Accept() }}
	spec := v1.ClusterPolicySpec{
		DaemonSets: &v1.DaemonSetsSpec{NodeSelector: v1.Labels{"example.com/pool": "gpu"}},
		DCGMExporter: &v1.DCGMExporterSpec{
			PlacementSpec: v1.PlacementSpec{NodeSelector: v1.Labels{"example.com/tier": "metrics"}},
		},
	}
	basis := f.Publish(fleet.Basis{Decisions: decide(spec, exporter)}, begin)
	g.Expect(basis.Selects("example.com/pool")).To(BeTrue())
	g.Expect(basis.Selects("example.com/tier")).To(BeTrue())
	g.Expect(basis.Selects("example.com/rack")).To(BeFalse())
	g.Expect(f.Publish(fleet.Basis{}, begin).Selects("example.com/pool")).To(BeFalse(), "there is no policy")
}

func TestPaused(t *testing.T) {
	g := NewWithT(t)
	g.Expect((&fleet.Basis{}).Paused()).To(BeFalse())
	g.Expect((&fleet.Basis{Decisions: decide(v1.ClusterPolicySpec{})}).Paused()).To(BeFalse())
	g.Expect((&fleet.Basis{Decisions: decide(v1.ClusterPolicySpec{Paused: new(true)})}).Paused()).To(BeTrue())
}
