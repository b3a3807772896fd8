package observe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
)

// The namespace is read rarely, and a label of any value decides.
func TestMonitoring(t *testing.T) {
	g := NewWithT(t)
	const label = "openshift.io/cluster-monitoring"
	reads, failure := 0, error(nil)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}}
	c := fake.NewClientBuilder().WithObjects(namespace).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(
			ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
		) error {
			if reads++; failure != nil {
				return failure
			}
			return c.Get(ctx, key, object, options...)
		},
	}).Build()
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	monitoring := observe.NewMonitoring(c, "gpus", clock)
	note := And(ContainSubstring("oc label namespace gpus "+label+"=true"), ContainSubstring("=false"))
	g.Expect(monitoring.Text(t.Context())).To(note)
	namespace.Labels = map[string]string{label: "false"}
	g.Expect(c.Update(t.Context(), namespace)).To(Succeed())
	g.Expect(monitoring.Text(t.Context())).To(note)
	g.Expect(reads).To(Equal(1))
	clock.SetTime(time.Unix(1600, 0))
	failure = errors.New("the API server is busy")
	g.Expect(monitoring.Text(t.Context())).To(note, "a read that fails changes nothing")
	g.Expect(reads).To(Equal(2))
	failure, reads = nil, 1
	clock.SetTime(time.Unix(2200, 0))
	g.Expect(monitoring.Text(t.Context())).To(BeEmpty())
	g.Expect(reads).To(Equal(2))
	g.Expect(observe.NewMonitoring(c, "none", clock).Text(t.Context())).To(BeEmpty())
}
