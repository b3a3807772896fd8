package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// refreshTenants reads whether pods use the GPUs of the nodes whose MIG layout could be requested now. It schedules the
// next read: these pods cause no events here.
func (s *scope) refreshTenants(ctx context.Context) {
	if s.Basis.Decisions == nil || s.Basis.Paused() {
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
		if left := s.memory.expireBusy(node.Name, s.Now, &s.Timing); left > 0 {
			s.lockAndRequeueAfter(left)
			continue
		}
		reads.Go(func() error {
			s.refreshTenantsOf(ctx, node, spec.Operator.RuntimeClass)
			return nil
		})
	}
	_ = reads.Wait()
}

// refreshTenantsOf reads whether pods use the GPUs of one node.
func (s *scope) refreshTenantsOf(ctx context.Context, node *upgrade.Node, runtimeClass string) {
	s.call(ctx, node.Name, readsPods, func(ctx context.Context) error {
		pods, err := observe.GPUPods(ctx, s.Live, node.Name, s.Namespace, runtimeClass)
		if err != nil {
			return err
		}
		if node.MIG.Idle = len(pods) == 0; !node.MIG.Idle {
			s.memory.noteBusy(node.Name, s.Now)
			s.lockAndRequeueAfter(s.Timing.RetryBusy)
		}
		return nil
	})
}

// patchLayout makes a transition of a node whose MIG layout is changed. With a request, the outcome of the earlier one
// is removed, so that the next outcome is that of the request. The API server rejects the patch if the Node has changed
// since it was read, or was replaced by another one.
func (s *scope) patchLayout(ctx context.Context, of *observed, step *upgrade.Step) {
	content, err := json.Marshal(layoutPatchOf(of.node, step.Layout))
	logger := log.FromContext(ctx).WithValues("node", step.Node)
	if err != nil {
		logger.Error(err, "Encoding a patch failed, which is a bug in the operator")
		return
	}
	s.recordDrainEvent(ctx, of.node, step.Layout)
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: step.Node}}
	done := s.call(ctx, step.Node, "patching the MIG layout", func(ctx context.Context) error {
		return s.Client.Patch(ctx, written, client.RawPatch(types.MergePatchType, content))
	})
	switch {
	case !done:
		return
	case step.Layout.Request != "":
		logger.Info("Requested a MIG layout", "layout", step.Layout.Request, "why", step.Why)
	default:
		logger.Info("Drain for a MIG layout", "why", step.Why)
	}
	s.memory.noteWritten(step.Node, written.ResourceVersion)
}

// layoutPatchOf returns the merge patch of a transition.
func layoutPatchOf(node *corev1.Node, patch *upgrade.LayoutPatch) map[string]any {
	labelChanges, annotationChanges := map[string]any{}, map[string]any{}
	if patch.Request != "" {
		labelChanges[labels.MIGConfig], labelChanges[labels.MIGConfigState] = patch.Request, nil
		annotationChanges[labels.MIGConfigWritten] = patch.Request
	}
	record := ""
	if patch.Drain != nil {
		record = patch.Drain.Encode()
	}
	set(annotationChanges, node.Annotations, labels.MIGDrain, record)
	return nodePatch(node, labelChanges, annotationChanges, patch.Unschedulable)
}

// recordDrainEvent records the Event of a transition. It has the slot and the state, so that it is not repeated if the
// operator stops before the patch.
func (s *scope) recordDrainEvent(ctx context.Context, node *corev1.Node, patch *upgrade.LayoutPatch) {
	drain := patch.Drain
	if drain == nil {
		drain, _ = upgrade.DecodeDrain(node.Annotations[labels.MIGDrain])
	}
	if patch.Event == "" || drain == nil {
		return
	}
	event := events.Event{
		Regarding: nodeReference(node), Type: corev1.EventTypeNormal, Reason: v1.EventMIGDrain, Message: patch.Event,
		Transition: fmt.Sprintf("%s %s %t", drain.Granted.Format(time.RFC3339Nano), drain.State, patch.Drain != nil),
	}
	if patch.Warning {
		event.Type = corev1.EventTypeWarning
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	s.Events.Record(ctx, event)
}
