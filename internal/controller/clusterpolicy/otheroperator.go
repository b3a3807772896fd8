package clusterpolicy

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/status/conditions"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/otheroperator"
)

// freezeForOther reports whether this pass and the nodes must not be written, because NVIDIA's operator is at work or
// it is not known whether it is. The policy gets a condition.
func (s *scope) freezeForOther(ctx context.Context) bool {
	if s.OtherOperator == nil {
		return false
	}
	daemonSets, err := observe.DaemonSets(ctx, s.Client, s.Namespace)
	if err != nil {
		s.fail(err)
		return true
	}
	found, err := s.OtherOperator.Check(ctx, daemonSets)
	if err != nil {
		s.fail(err)
		return true
	}
	if found == nil {
		if s.otherOperator != "" {
			log.FromContext(ctx).Info("No longer frozen: NVIDIA's operator is not at work any more")
		}
		s.otherOperator = ""
		return false
	}
	s.basis = s.Fleet.Publish(fleet.Basis{KeepNodes: true}, s.now)
	s.driversTakenOver = false
	s.requeueAfter(found.RecheckAfter)
	s.reportOther(ctx, found)
	return true
}

// reportOther writes an Event and a log line for each finding, and the condition, unless a write of the policy could
// lose fields of its spec.
func (s *scope) reportOther(ctx context.Context, found *otheroperator.Finding) {
	key := found.Key
	if s.policy != nil {
		key += " " + string(s.policy.UID)
	}
	isNew := s.otherOperator != key
	s.otherOperator = key
	if isNew {
		log.FromContext(ctx).Info("Frozen: changing nothing beside NVIDIA's operator", "reason", found.Message)
	}
	if s.policy == nil {
		return
	}
	if isNew {
		s.Status.RecordFrozen(ctx, s.policy, v1.ReasonOtherOperatorRunning, found.Message, key)
	}
	if s.mayWritePolicy(ctx) {
		s.noteDeleted(s.writeStatus(ctx, s.policy, conditions.OtherOperatorRunning(s.policy, found.Message)))
	}
}

// mayWritePolicy reports whether a write of the policy loses no fields. The CRD is read from the API server: an
// installation of NVIDIA's operator may have just replaced it.
func (s *scope) mayWritePolicy(ctx context.Context) bool {
	if len(s.missingFields) > 0 || s.policyIsDeleted() {
		return false
	}
	readCtx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	missing, err := s.Schema.MissingFieldsLive(readCtx)
	if err != nil {
		s.fail(err)
		return false
	}
	s.missingFields = missing
	return len(missing) == 0
}
