package node

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// awaitsUnused reports whether the node gets its first MIG layout when no pod uses its GPUs. An upgrade of the driver
// comes first, and a node that is drained for its layout gets it from the upgrade controller.
func (s *scope) awaitsUnused() bool {
	_, disturbs := s.basis.Decisions.FirstLayout(s.entry.Facts, s.node.Labels)
	return disturbs && !upgrade.State(s.node.Labels[labels.UpgradeState]).InProgress() && !isDrained(s.node)
}

// isUnused reports whether no pod was found to use the GPUs of the node just now. What the kubelet advertises does not
// say so: pods keep their GPUs while it restarts.
func (s *scope) isUnused() bool {
	read := &s.entry.Writes.Tenants
	return read.At.Equal(s.now) && len(read.Pods) == 0
}

// refreshTenants reads which pods use the GPUs of the node, if its MIG layout depends on them: once for each state of
// it, and again while a layout waits for them. Those that the report names stay there until they end: others that start
// do not change it.
//
// If a layout is about to be requested, they are read again unless there were some a short time ago.
func (s *scope) refreshTenants(ctx context.Context, requests bool) {
	planned, read := s.nodePlan(), &s.entry.Writes.Tenants
	of := tenantsOf(planned)
	if of == "" {
		*read = fleet.Tenants{}
		return
	}
	waits := planned.MIGWanted != ""
	if waits && s.basis.Paused() {
		// No layout is requested. The end of the pause publishes another Basis.
		return
	}
	left := s.retryTenants(read) - s.now.Sub(read.At)
	confirms := requests && len(read.Pods) == 0
	if read.Of == of && !confirms && (!waits || left > 0) {
		if waits {
			s.requeueWithin(left)
		}
		return
	}
	s.refreshTenantsFor(ctx, of)
	if waits {
		s.requeueWithin(s.retryTenants(read))
	}
}

// refreshTenantsFor reads the pods for this state of the MIG layout.
func (s *scope) refreshTenantsFor(ctx context.Context, of string) {
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	read := &s.entry.Writes.Tenants
	pods, err := observe.GPUPods(ctx, s.Live, s.node.Name, s.Namespace, s.nodePlan().Spec.Operator.RuntimeClass)
	if err != nil {
		log.FromContext(ctx).Error(err, "The pods that use the GPUs are not known, for which the MIG layout waits")
		s.requeueWithin(s.Timing.FirstRetry)
		return
	}
	since := s.now
	if read.Of == of {
		since, pods = read.Since, stillNamed(read.Pods, pods)
	}
	*read = fleet.Tenants{Of: of, Since: since, At: s.now, Pods: pods}
}

// retryTenants is the delay between the reads: it grows with the time that the layout has waited. The upgrade
// controller, which reads them too when the node may get a layout, does not wait for these.
func (s *scope) retryTenants(read *fleet.Tenants) time.Duration {
	return min(max(read.At.Sub(read.Since), s.Timing.RetryTenants), s.Timing.MaxRetryTenants)
}

// tenantsOf returns for which state of the MIG layout the pods are to be read, empty for none.
func tenantsOf(planned *plan.NodePlan) string {
	if planned.Partitioner == "" {
		return ""
	}
	requested, state := planned.Facts.Labels[labels.MIGConfig], planned.Facts.Labels[labels.MIGConfigState]
	if planned.MIGWanted == "" && state != labels.MIGStatePending && state != labels.MIGStateFailed {
		return ""
	}
	return requested + " " + state + " " + planned.MIGWanted
}

// stillNamed returns those of the named pods that are left, or if there are none, all that there are now.
func stillNamed(named, now []string) []string {
	left := slices.DeleteFunc(slices.Clone(named), func(pod string) bool { return !slices.Contains(now, pod) })
	if len(left) == 0 {
		return now
	}
	return left
}
