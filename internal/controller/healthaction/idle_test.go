package healthaction

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

// decide returns the decisions of a spec with these actions, nil for none.
func decide(actions *v1.HealthActionsSpec) *plan.Decisions {
	spec := v1.ClusterPolicySpec{Health: &v1.HealthSpec{Agent: &v1.HealthAgentSpec{Enabled: new(true)}, Actions: actions}}
	return &plan.Decisions{Input: operand.Input{Spec: effective.Of(spec)}}
}

// Without actions, an event of any node costs the same however many nodes there are: neither nodes nor entries are
// read. An action ends that.
func TestNothingIsReadWithoutActions(t *testing.T) {
	g := NewWithT(t)
	lists, clock := 0, clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	server := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			lists++
			return nil
		},
	}).Build()
	r := New(Options{Client: server, Fleet: fleet.New(), Clock: clock, Timing: DefaultTiming()})
	r.Fleet.Hydrate(nil)
	pass := func() error {
		_, err := r.Reconcile(t.Context(), ctrl.Request{})
		return err
	}
	r.Fleet.Publish(fleet.Basis{Policy: &v1.ClusterPolicy{}, Decisions: decide(nil)}, clock.Now())
	g.Expect(pass()).To(Succeed())
	g.Expect(lists).To(Equal(1), "an earlier operator may have left something to undo")
	allocations := func() float64 {
		return testing.AllocsPerRun(10, func() { g.Expect(pass()).To(Succeed()) })
	}
	few := allocations()
	for i := range 1000 {
		r.Fleet.Set(&fleet.Entry{Facts: nodeinfo.Facts{Name: fmt.Sprint("node-", i)}})
	}
	g.Expect(allocations()).To(BeNumerically("<", few+20), "with 1,000 nodes as with none")
	g.Expect(lists).To(Equal(1))

	acting := decide(&v1.HealthActionsSpec{Reset: v1.HealthActionTaint})
	r.Fleet.Publish(fleet.Basis{Policy: &v1.ClusterPolicy{}, Decisions: acting}, clock.Now())
	g.Expect(pass()).To(Succeed())
	g.Expect(lists).To(Equal(2))
}
