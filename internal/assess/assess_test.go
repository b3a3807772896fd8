package assess_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
)

// Since comes from the previous assessment unless the readiness has changed or the time is unknown.
func TestSince(t *testing.T) {
	hourAgo := begin.Add(-time.Hour)
	tests := map[string]struct {
		ready    bool
		previous assess.ReadySince
		want     time.Time
	}{
		"ready, no previous assessment":     {ready: true, want: begin},
		"not ready, no previous assessment": {want: begin},
		"still ready": {
			ready:    true,
			previous: assess.ReadySince{Ready: true, Since: hourAgo},
			want:     hourAgo,
		},
		"still not ready":                    {previous: assess.ReadySince{Since: hourAgo}, want: hourAgo},
		"ready now":                          {ready: true, previous: assess.ReadySince{Since: hourAgo}, want: begin},
		"no longer ready":                    {previous: assess.ReadySince{Ready: true, Since: hourAgo}, want: begin},
		"still ready, since an unknown time": {ready: true, previous: assess.ReadySince{Ready: true}, want: begin},
		"ready now, previously not since an unknown time": {ready: true, previous: assess.ReadySince{}, want: begin},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[test.ready]
			got := assess.Node(assess.Input{
				NodePlan: plan.Decide(nil, operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}).ForNode(nodeinfo.Facts{
					Name:   "a",
					HasGPU: true,
				}),
				Node: &corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "a"},
					Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}},
				},
				Previous: test.previous, Now: begin,
			})
			g.Expect(got.Ready()).To(Equal(test.ready))
			g.Expect(got.Since).To(Equal(test.want))
			g.Expect(got.At).To(Equal(begin))
			g.Expect(got.ReadySince()).To(Equal(assess.ReadySince{Ready: test.ready, Since: test.want}))
		})
	}
}
