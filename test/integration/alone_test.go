package integration

import (
	"testing"

	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestWithTheAPIServerAlone has the stories for which no controller need act. They share one API server, one after
// another.
func TestWithTheAPIServerAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t, bedOptions{bare: true, timing: simulator.DefaultTiming()})
	for _, story := range []struct {
		name string
		tell func(*bed)
	}{
		{"the operator's pod is restricted", (*bed).theOperatorsPodIsRestricted},
		{"network policies meet the operator alone", (*bed).networkPoliciesMeetTheOperatorAlone},
		{"metrics are for readers", (*bed).metricsAreForReaders},
		{"plain metrics", (*bed).plainMetrics},
		{"the certificate of the metrics is renewed", (*bed).theCertificateOfTheMetricsIsRenewed},
	} {
		t.Run(story.name, func(t *testing.T) {
			view := b.in(t)
			defer view.endOperator()
			story.tell(view)
		})
	}
}
