package effective

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// TaintsUnhealthyNodes reports whether the action for unhealthy GPUs of any class is a taint.
func (s Spec) TaintsUnhealthyNodes() bool { return s.hasHealthAction(v1.HealthActionTaint) }

// ActsOnUnhealthyNodes reports whether there is an action for unhealthy GPUs of any class.
func (s Spec) ActsOnUnhealthyNodes() bool {
	return s.TaintsUnhealthyNodes() || s.hasHealthAction(v1.HealthActionCordon)
}

func (s Spec) hasHealthAction(action v1.HealthAction) bool {
	actions := s.Health.Actions
	return slices.Contains([]v1.HealthAction{actions.Reset, actions.Reboot, actions.Hardware}, action)
}

func health(s *v1.HealthSpec) {
	option(&s.MinUsable, intstr.FromString("100%")) // own
	option(&block(&s.Agent).Enabled, false)         // own: it needs a privileged container
	actions := block(&s.Actions)
	option(&actions.MaxNodes, intstr.FromInt32(1)) // own
	value(&actions.All, v1.HealthActionNone)       // own
	value(&actions.Reset, actions.All)
	value(&actions.Reboot, actions.All)
	value(&actions.Hardware, actions.All)
}
