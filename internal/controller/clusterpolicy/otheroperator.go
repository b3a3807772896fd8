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

// yieldToOther freezes the pass and the nodes while NVIDIA's operator is at work, or it is not known whether it is.
func (s *scope) yieldToOther(ctx context.Context) {
	found, err := s.trackOther(ctx)
	s.fail(err)
	switch s.frozen = found != nil || err != nil; {
	case found != nil:
		s.basis = s.Fleet.Publish(fleet.Basis{KeepNodes: true}, s.now)
		s.driversTakenOver = false
		s.requeueAfter(found.RecheckAfter)
		s.reportOther(ctx, found)
	case err == nil && s.otherOperator != "":
		log.FromContext(ctx).Info("No longer frozen: NVIDIA's operator is not at work any more")
		s.otherOperator = ""
	}
}

// trackOther returns what of NVIDIA's operator is at work; nil for nothing, or if this one does not wait for its end.
func (s *scope) trackOther(ctx context.Context) (*otheroperator.Finding, error) {
	if s.OtherOperator == nil {
		return nil, nil
	}
	daemonSets, err := observe.DaemonSets(ctx, s.Client, s.Namespace)
	if err != nil {
		return nil, err
	}
	return s.OtherOperator.Track(ctx, daemonSets)
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
	if len(s.missingFields) > 0 {
		return
	}
	if left := s.deletedFor(); left > 0 {
		s.requeueAfter(left)
		return
	}
	if s.recheckSchema(ctx) {
		s.noteDeleted(s.writeStatus(ctx, s.policy, conditions.OtherOperatorRunning(s.policy, found.Message)))
	}
}

// recheckSchema finds the missing fields again, and reports whether a write of the policy loses none. It reads the CRD
// from the API server: an installation of NVIDIA's operator may have just replaced it.
func (s *scope) recheckSchema(ctx context.Context) bool {
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
