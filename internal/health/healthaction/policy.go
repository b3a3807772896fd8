package healthaction

import (
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
)

// DefaultDwell is how long a fault must last before the action. A node that has lost a GPU is tainted at once: all its
// GPU pods may fail from then on.
const DefaultDwell = 10 * time.Minute

// The breaker: no node is acted on while at least stormNodes of the nodes, and more than a stormPart of them, have
// faults that began within stormWindow. A driver, not hardware, is then the likely cause.
const (
	stormNodes  = 3
	stormPart   = 5
	stormWindow = 10 * time.Minute
)

// Policy is spec.health.actions with its defaults.
type Policy struct {
	// Actions by the class of the fault: none, taint or cordon.
	Actions map[gpuhealth.Class]v1.HealthAction
	// MaxNodes is how many nodes may be acted on at a time: a number, or a percentage of the nodes.
	MaxNodes intstr.IntOrString
	// Dwell is how long a fault must last; nil for the default.
	Dwell *time.Duration
}

// PolicyOf returns the policy of a block that has its defaults. A dwell that Go cannot have, such as three times
// 999999h, counts as the longest one: to act late does less harm than to act early.
func PolicyOf(spec *v1.HealthActionsSpec) Policy {
	policy := Policy{
		Actions: map[gpuhealth.Class]v1.HealthAction{
			gpuhealth.Reset: spec.Reset, gpuhealth.Reboot: spec.Reboot, gpuhealth.Hardware: spec.Hardware,
		},
		MaxNodes: *spec.MaxNodes,
	}
	if spec.Dwell != "" {
		dwell, err := time.ParseDuration(spec.Dwell)
		if err != nil {
			dwell = math.MaxInt64
		}
		policy.Dwell = &dwell
	}
	return policy
}

// Acts reports whether there is an action for any class.
func (p *Policy) Acts() bool { return p.actsFor("") }

// actsFor reports whether there is an action for the fault with this ID; for any fault if it is empty.
func (p *Policy) actsFor(fault string) bool {
	for class, action := range p.Actions {
		if rank(action) > 0 && (fault == "" || strings.HasPrefix(fault, idPrefix(class))) {
			return true
		}
	}
	return false
}

// rank orders actions; 0 is none.
func rank(action v1.HealthAction) int {
	switch action {
	case v1.HealthActionTaint:
		return 1
	case v1.HealthActionCordon:
		return 2
	default:
		return 0
	}
}

// dwell is how long the fault must last before the action.
func (p *Policy) dwell(fault *gpuhealth.Fault, action v1.HealthAction) time.Duration {
	switch {
	case p.Dwell != nil:
		return *p.Dwell
	case fault.IsLost() && action == v1.HealthActionTaint:
		return 0
	default:
		return DefaultDwell
	}
}

// isUrgent reports whether the fault is acted on at once, while others wait.
func (p *Policy) isUrgent(fault *gpuhealth.Fault) bool {
	return p.Dwell == nil && p.dwell(fault, p.Actions[fault.Class]) == 0
}
