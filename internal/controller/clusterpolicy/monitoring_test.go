package clusterpolicy

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

// A namespace that OpenShift's monitoring does not scrape is reported there, while there is something to scrape.
func TestUnmonitoredNamespace(t *testing.T) {
	openShift := []nodeinfo.Layout{{Name: nodeinfo.LayoutOpenShift}}
	monitored := map[operand.OptionalKind]bool{operand.ServiceMonitor: true}
	for name, test := range map[string]struct {
		planned plan.Plan
		labels  map[string]string
		noted   bool
	}{
		"OpenShift": {
			planned: plan.Plan{Decisions: &plan.Decisions{}, Input: operand.Input{Layouts: openShift, Optional: monitored}},
			noted:   true,
		},
		"scraped": {
			planned: plan.Plan{Decisions: &plan.Decisions{}, Input: operand.Input{Layouts: openShift, Optional: monitored}},
			labels:  map[string]string{"openshift.io/cluster-monitoring": "true"},
		},
		"without ServiceMonitors": {
			planned: plan.Plan{Decisions: &plan.Decisions{}, Input: operand.Input{Layouts: openShift}},
		},
		"another distribution": {
			planned: plan.Plan{Decisions: &plan.Decisions{}, Input: operand.Input{Optional: monitored}},
		},
		"a pass without a plan": {},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := fake.NewClientBuilder().WithObjects(&corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: "gpus", Labels: test.labels},
			}).Build()
			s := &scope{planned: test.planned, Reconciler: &Reconciler{
				monitoring: observe.NewMonitoring(c, "gpus", clocktesting.NewFakePassiveClock(time.Unix(1, 0))),
			}}
			in := status.Input{}
			s.addClusterNotes(t.Context(), &in)
			notes := in.Notes
			if !test.noted {
				g.Expect(notes).To(BeEmpty())
				g.Expect(s.requeueDelay).To(BeZero())
				return
			}
			g.Expect(notes).To(ConsistOf(ContainSubstring("oc label namespace gpus openshift.io/cluster-monitoring=true")))
			g.Expect(s.requeueDelay).To(Equal(observe.NoteInterval))
		})
	}
}
