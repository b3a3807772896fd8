package observe

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// MonitoringInterval is how long the label of the namespace counts as it was read.
const MonitoringInterval = 10 * time.Minute

// monitoringDeadline bounds a read of the namespace, for which a pass waits.
const monitoringDeadline = 5 * time.Second

// Monitoring finds out whether OpenShift's cluster monitoring scrapes the operator's namespace. Calls must not overlap.
type Monitoring struct {
	live      client.Reader
	namespace string
	clock     clock.PassiveClock

	readAt time.Time
	note   string
}

// NewMonitoring returns one that reads from the API server: an informer for Namespaces would block the start where
// reading them is forbidden.
func NewMonitoring(live client.Reader, namespace string, clock clock.PassiveClock) *Monitoring {
	return &Monitoring{live: live, namespace: namespace, clock: clock}
}

// Note returns a sentence with the remedy if the namespace has no label that decides about its monitoring; empty if it
// has one, or cannot be read.
func (m *Monitoring) Note(ctx context.Context) string {
	if now := m.clock.Now(); m.readAt.IsZero() || now.Sub(m.readAt) >= MonitoringInterval {
		m.readAt, m.note = now, m.read(ctx)
	}
	return m.note
}

func (m *Monitoring) read(ctx context.Context) string {
	namespace := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
	}
	ctx, cancel := context.WithTimeout(ctx, monitoringDeadline)
	defer cancel()
	if err := m.live.Get(ctx, client.ObjectKey{Name: m.namespace}, namespace); err != nil {
		return ""
	}
	if _, decided := namespace.Labels[labels.ClusterMonitoring]; decided {
		return ""
	}
	return fmt.Sprintf("OpenShift's cluster monitoring does not scrape namespace %[1]s: run oc label namespace %[1]s "+
		"%[2]s=true, or =false if another Prometheus scrapes it", m.namespace, labels.ClusterMonitoring)
}
