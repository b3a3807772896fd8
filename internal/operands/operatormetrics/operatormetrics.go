package operatormetrics

import (
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands/internal/servicemonitor"
)

// Name of the operand.
const Name operand.Name = "operator-metrics"

// app is the name of the Service, and the label app of the operator's own pods, see config/manager.
const app = "gpu-operator"

// Operand is the way to the operator's metrics.
func Operand() operand.Operand {
	return operand.Operand{
		Name:      Name,
		Decide:    func(operand.Input) operand.Decision { return operand.Installed() },
		Instances: instances,
	}
}

type values struct {
	Monitor  servicemonitor.Values
	Endpoint operand.MetricsEndpoint
	// Annotations of the Service.
	Annotations map[string]string
}

func instances(in operand.Input, _ []nodeinfo.Pool) ([]operand.Instance, error) {
	monitor := servicemonitor.Of(in, app, in.Spec.Operator.Metrics.ServiceMonitor)
	made := values{Monitor: monitor, Endpoint: in.OperatorMetrics}
	if in.AppliedSpec != "" {
		made.Annotations = map[string]string{labels.AppliedSpec: in.AppliedSpec}
	}
	return []operand.Instance{{Values: made}}, nil
}
