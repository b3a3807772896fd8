package effective

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

func health(s *v1.HealthSpec) {
	option(&s.MinUsable, intstr.FromString("100%")) // own
	option(&block(&s.Agent).Enabled, false)         // own: it needs a privileged container
}
