package clusterpolicy

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/status"
	"github.com/clusterpolicy/gpu-operator/internal/status/statuswriter"
)

// The objects have a status by the decisions of the pass once all nodes are assessed by them, and not before.
func TestStatusOfNVIDIADriversAfterAPass(t *testing.T) {
	catalogue, err := operands.Catalogue()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	used := &fleet.Basis{Decisions: plan.Decide(catalogue, operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{
		Driver: &v1.DriverSpec{UseNvidiaDriverCRD: new(true)},
	})})}
	unused := &fleet.Basis{Decisions: plan.Decide(catalogue, operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})})}
	for name, test := range map[string]struct {
		basis      *fleet.Basis
		unassessed int
		want       v1alpha1.DriverState
	}{
		"without a basis":        {},
		"before the assessments": {basis: used, unassessed: 1},
		"after them":             {basis: used, want: v1alpha1.StateReady},
		"of a policy without":    {basis: unused, want: v1alpha1.StateDisabled},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			object := &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: "default", Generation: 1}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(object).WithStatusSubresource(object).Build()
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
			clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
			s := &scope{
				Reconciler: &Reconciler{Options: Options{
					DriverStatus: statuswriter.NewDriverWriter(c, clock, statuswriter.DefaultTiming()), Clock: clock,
				}},
				basis: test.basis, drivers: []v1alpha1.NVIDIADriver{*object},
			}
			s.reportDrivers(t.Context(), status.Input{Unassessed: test.unassessed})
			g.Expect(s.err).NotTo(HaveOccurred())
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(object), object)).To(Succeed())
			g.Expect(object.Status.State).To(Equal(test.want))
		})
	}
}
