package node_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/controller/node"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// fixture is a node and its Reconciler, with a clock that the spec advances.
type fixture struct {
	*testNode
	*calls
	clock      *clocktesting.FakePassiveClock
	fleet      *fleet.Fleet
	reconciler *node.Reconciler
}

func newFixture(ctx context.Context, changes ...func(*corev1.Node)) *fixture {
	GinkgoHelper()
	direct := newClient()
	f := &fixture{testNode: newTestNode(ctx, direct, changes...), calls: newCalls(), fleet: fleet.New()}
	// The API server has stamped the node and its pods with its own time.
	f.clock = clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second).Add(time.Second))
	recorded := f.wrap(direct, listPods)
	f.reconciler = node.New(node.Options{
		Client: recorded, Live: f.wrap(direct, listLive), Catalogue: catalogue, Namespace: cluster.OperatorNamespace,
		Fleet: f.fleet, Clock: f.clock, Events: events.NewRecorder(recorded, f.clock, func(string) {}),
		Meter: metrics.New(f.clock), Timing: node.DefaultTiming(),
	})
	return f
}

// newReady returns a fixture whose node has been reported ready.
func newReady(ctx context.Context) *fixture {
	GinkgoHelper()
	f := newFixture(ctx)
	f.publish(v1.ClusterPolicySpec{})
	Expect(f.reconcileAfter(ctx, 0)).To(BeZero())
	Expect(f.reported(ctx)).To(Equal("True GPUReady"))
	f.takeCalls()
	return f
}

// basis returns the Basis for a policy with this spec.
func basis(spec v1.ClusterPolicySpec) fleet.Basis {
	in := operand.Input{
		Spec:          effective.Of(spec),
		Namespace:     cluster.OperatorNamespace,
		OperatorImage: "example.com/gpu-operator:v1",
	}
	return fleet.Basis{Policy: &v1.ClusterPolicy{Spec: spec}, Decisions: plan.Decide(catalogue, in)}
}

// publish publishes a Basis with this spec.
func (f *fixture) publish(spec v1.ClusterPolicySpec) {
	f.fleet.Publish(basis(spec), f.clock.Now())
}

// reconcileAfter advances the clock and reconciles the node. It returns RequeueAfter; 0 means never.
func (f *fixture) reconcileAfter(ctx context.Context, elapsed time.Duration) (time.Duration, error) {
	f.clock.SetTime(f.clock.Now().Add(elapsed))
	result, err := f.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: f.name}})
	return result.RequeueAfter, err
}

// entry returns the entry of the node; nil if there is none.
func (f *fixture) entry() *fleet.Entry { return f.fleet.Get(f.name) }
