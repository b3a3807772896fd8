package integration

import (
	"testing"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// TestOnBareAPIServer has the tests that do not need controllers. They share one API server, sequentially.
func TestOnBareAPIServer(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{bare: true, timing: simulator.DefaultTiming()})
	for _, test := range []struct {
		name string
		run  func(*env)
	}{
		{"the operator's pod is restricted", (*env).theOperatorsPodIsRestricted},
		{"network policies only select the operator", (*env).networkPoliciesOnlySelectTheOperator},
		{"metrics are for readers", (*env).metricsAreForReaders},
		{"plain metrics", (*env).plainMetrics},
		{"the certificate of the metrics is renewed", (*env).theCertificateOfTheMetricsIsRenewed},
	} {
		t.Run(test.name, func(t *testing.T) {
			view := e.in(t)
			defer view.endOperator()
			test.run(view)
		})
	}
}
