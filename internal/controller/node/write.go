package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
)

// patchMetadata writes changes of labels and annotations in one call; nil values remove keys. It fails with a conflict
// if the node has changed since it was read: a value that another client has just written must not be overwritten.
func (s *scope) patchMetadata(ctx context.Context, labelChanges, annotationChanges map[string]*string) error {
	if len(labelChanges) == 0 && len(annotationChanges) == 0 {
		return nil
	}
	metadata := map[string]any{"resourceVersion": s.node.ResourceVersion}
	if len(labelChanges) > 0 {
		metadata["labels"] = labelChanges
	}
	if len(annotationChanges) > 0 {
		metadata["annotations"] = annotationChanges
	}
	return s.patch(ctx, "labels", map[string]any{"metadata": metadata})
}

// body is a patch that is encoded when it is sent.
type lazyPatch struct {
	kind    types.PatchType
	content map[string]any
}

// Type implements client.Patch.
func (p lazyPatch) Type() types.PatchType { return p.kind }

// Data implements client.Patch.
func (p lazyPatch) Data(client.Object) ([]byte, error) { return json.Marshal(p.content) }

// patch changes labels, annotations or taints.
func (s *scope) patch(ctx context.Context, what string, content map[string]any) error {
	return s.send(ctx, what, func(ctx context.Context, node *corev1.Node) error {
		return s.Client.Patch(ctx, node, lazyPatch{types.MergePatchType, content})
	})
}

// patchCondition writes the condition nvidia.com/GPUReady, or deletes it.
func (s *scope) patchCondition(ctx context.Context, condition any) error {
	content := map[string]any{"status": map[string]any{"conditions": []any{condition}}}
	return s.send(ctx, "condition", func(ctx context.Context, node *corev1.Node) error {
		return s.Client.Status().Patch(ctx, node, lazyPatch{types.StrategicMergePatchType, content})
	})
}

// send makes one call that changes the node, which is then as the API server has answered, trimmed as in the cache.
// what names in errors the part of the node that is written.
func (s *scope) send(ctx context.Context, what string, call func(context.Context, *corev1.Node) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node.Name}}
	if err := call(ctx, written); err != nil {
		return fmt.Errorf("patching %s of node %s: %w", what, s.node.Name, err)
	}
	s.node, s.entry.Writes.Version = observe.TrimmedNode(written), written.ResourceVersion
	return nil
}

// release takes what the operator wrote off the node: labels, annotations, condition and taints. present is the
// value that nvidia.com/gpu.present keeps on a node that has lost its GPUs; it is empty where the policy
// is gone, and then all goes. Start-up taints go last, and may be refused.
func (s *scope) release(ctx context.Context, present string) error {
	annotations, changes := map[string]*string{}, map[string]*string{}
	if wasManaged(s.node) {
		changes = plan.ReleasedLabels(s.Catalogue, s.node.Labels, present)
	}
	if _, noted := s.node.Annotations[labels.DiscoveryMissingSince]; noted {
		annotations[labels.DiscoveryMissingSince] = nil
	}
	if _, noted := s.node.Annotations[labels.DiscoveryLostSince]; noted && present == "" {
		// It stays until then as the mark of who wrote that label.
		annotations[labels.DiscoveryLostSince] = nil
	}
	if present == "" {
		removeDiscoveryLabels(s.node, changes, annotations)
	}
	if err := s.patchMetadata(ctx, changes, annotations); err != nil {
		return err
	}
	if assess.GPUReadyCondition(s.node) != nil {
		if err := s.patchCondition(ctx, map[string]string{"type": labels.ConditionGPUReady, "$patch": "delete"}); err != nil {
			return err
		}
	}
	return s.writeTaints(ctx, v1.NodeStartupSpec{}, plan.ReleaseTaints)
}

// undiscover takes off what node discovery has written: its pods go with the policy.
func removeDiscoveryLabels(node *corev1.Node, changes, annotations map[string]*string) {
	keys, discovered := node.Annotations[labels.Discovered]
	if !discovered {
		return
	}
	annotations[labels.Discovered] = nil
	for key := range strings.SplitSeq(keys, ",") {
		// The list is written on the node: it may name what discovery has the right to write, and no more.
		if _, there := node.Labels[key]; there && labels.IsDiscoverable(key) {
			changes[key] = nil
		}
	}
}
