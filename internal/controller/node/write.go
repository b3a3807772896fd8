package node

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/nodemarks"
	"github.com/clusterpolicy/gpu-operator/internal/node/startuptaint"
)

// patchMetadata writes changes of labels and annotations in one call; nil removes a key. It fails with a conflict if
// the node has changed since it was read, so that it does not overwrite another writer's new value.
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

// lazyPatch is a patch that is encoded when it is sent.
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

// patchConditions writes or deletes conditions of the operator, and the record of what the node's conditions say then.
func (s *scope) patchConditions(ctx context.Context, record assess.Record, conditions ...any) error {
	content := map[string]any{"status": map[string]any{"conditions": conditions}}
	if !record.IsOf(s.node) {
		content["metadata"] = map[string]any{"annotations": map[string]any{labels.ReportRecord: record.Annotation()}}
	}
	return s.send(ctx, "condition", func(ctx context.Context, node *corev1.Node) error {
		return s.Client.Status().Patch(ctx, node, lazyPatch{types.StrategicMergePatchType, content})
	})
}

// send makes one call that changes the node, and keeps the answer, trimmed as in the cache. what names the changed part
// in errors.
func (s *scope) send(ctx context.Context, what string, call func(context.Context, *corev1.Node) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node.Name}}
	if err := call(ctx, written); err != nil {
		return fmt.Errorf("patching %s of node %s: %w", what, s.node.Name, err)
	}
	s.node, s.entry.Writes.Version = cachefilter.TrimmedNode(written), written.ResourceVersion
	return nil
}

// release removes what the operator wrote on the node: labels, annotations, condition and taints, but not what the
// upgrade controller wrote, which may have to uncordon the node first. present is the value
// of nvidia.com/gpu.present for a node that has lost its GPUs; empty if the policy is deleted, which removes
// everything. Start-up taints come last, since that may be forbidden.
func (s *scope) release(ctx context.Context, present string) error {
	changes := nodemarks.Released(s.Catalogue, s.node, present)
	if err := s.patchMetadata(ctx, changes.Labels, changes.Annotations); err != nil {
		return err
	}
	if err := s.deleteConditions(ctx); err != nil {
		return err
	}
	return s.writeTaints(ctx, v1.NodeStartupSpec{}, startuptaint.Release, "")
}

// deleteConditions deletes those conditions of the operator that the node has.
func (s *scope) deleteConditions(ctx context.Context) error {
	found := nodemarks.Conditions(s.node)
	if len(found) == 0 {
		return nil
	}
	return s.patchConditions(ctx, assess.Record{}, nodemarks.DeletedConditions(found...)...)
}
