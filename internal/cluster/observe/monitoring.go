package observe

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// NewMonitoring returns a Note with the remedy if OpenShift's cluster monitoring does not scrape the operator's
// namespace, as that has no label that decides about it. It reads from the API server: an informer for Namespaces would
// block the start where reading them is forbidden.
func NewMonitoring(live client.Reader, namespace string, clock clock.PassiveClock) *Note {
	return NewNote(clock, func(ctx context.Context) (string, error) { return monitoringNote(ctx, live, namespace) })
}

func monitoringNote(ctx context.Context, live client.Reader, name string) (string, error) {
	namespace := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
	}
	if err := live.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if _, decided := namespace.Labels[labels.ClusterMonitoring]; decided {
		return "", nil
	}
	return fmt.Sprintf("OpenShift's cluster monitoring does not scrape namespace %[1]s: run oc label namespace %[1]s "+
		"%[2]s=true, or =false if another Prometheus scrapes it", name, labels.ClusterMonitoring), nil
}
