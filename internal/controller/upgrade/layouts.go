package upgrade

import (
	"context"
	"encoding/json"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// readTenants reads whether pods use the GPUs of the nodes whose MIG layout could be requested now. It schedules the
// next read: these pods cause no events here.
func (s *scope) readTenants(ctx context.Context) {
	if s.basis.Decisions == nil || s.basis.Paused() {
		return
	}
	var reads errgroup.Group
	reads.SetLimit(workers)
	for _, i := range s.cluster.AwaitingTenants() {
		node := &s.cluster.Nodes[i]
		entry := s.Fleet.Get(node.Name)
		if s.observed[node.Name].hold || entry == nil || entry.Planned == nil {
			continue
		}
		spec := entry.Planned.NodePlan.Spec
		if config := spec.MIGManager.Config; config != nil && config.OnBusy == v1.MIGBusyNow {
			node.MIG.Idle = true
			continue
		}
		if left := s.memory.busyFor(node.Name, s.now, &s.Timing); left > 0 {
			s.requeueAfterLocked(left)
			continue
		}
		reads.Go(func() error {
			s.readTenantsOf(ctx, node, spec.Operator.RuntimeClass)
			return nil
		})
	}
	_ = reads.Wait()
}

// readTenantsOf reads whether pods use the GPUs of one node.
func (s *scope) readTenantsOf(ctx context.Context, node *upgrade.Node, runtimeClass string) {
	s.call(ctx, node.Name, "reading the pods", func(ctx context.Context) error {
		pods, err := observe.GPUPods(ctx, s.Live, node.Name, s.Namespace, runtimeClass)
		if err != nil {
			return err
		}
		if node.MIG.Idle = len(pods) == 0; !node.MIG.Idle {
			s.memory.foundBusy(node.Name, s.now)
			s.requeueAfterLocked(s.Timing.RetryBusy)
		}
		return nil
	})
}

// requestLayout requests a MIG layout. The outcome of the earlier one is removed, so that the next outcome is that of
// the request.
func (s *scope) requestLayout(ctx context.Context, of *observed, step *upgrade.Step) {
	content, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": of.node.UID, "resourceVersion": of.node.ResourceVersion,
		"labels":      map[string]any{labels.MIGConfig: step.Layout, labels.MIGConfigState: nil},
		"annotations": map[string]any{labels.MIGConfigWritten: step.Layout},
	}})
	logger := log.FromContext(ctx).WithValues("node", step.Node, "layout", step.Layout)
	if err != nil {
		logger.Error(err, "Encoding a patch failed, which is a bug in the operator")
		return
	}
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: step.Node}}
	done := s.call(ctx, step.Node, "requesting a MIG layout", func(ctx context.Context) error {
		return s.Client.Patch(ctx, written, client.RawPatch(types.MergePatchType, content))
	})
	if done {
		s.memory.wrote(step.Node, written.ResourceVersion)
		logger.Info("Requested a MIG layout", "why", step.Why)
	}
}
