package effective

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// health leaves imagePullPolicy of the agent unset: it has the validator's image and pull policy.
func health(s *v1.HealthSpec) {
	option(&s.MinUsable, intstr.FromString("100%")) // own
	agent := block(&s.Agent)
	option(&agent.Enabled, false) // own: it needs a privileged container
	container(&agent.ContainerSpec)
	serviceMonitor(block(&agent.ServiceMonitor), true) // own
}
