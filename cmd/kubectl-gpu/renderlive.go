package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// computeLive computes what the operator does in the cluster, after the edit of the file if it has a policy.
func (o renderOptions) computeLive(
	ctx context.Context, file *policyFile, nodes []corev1.Node, given preview.Given,
) (*rendition, error) {
	edit := file.edit()
	cluster, err := o.readCluster(ctx, edit)
	if err != nil {
		return nil, err
	}
	cluster.Given = given
	if o.nodes != "" {
		replaceNodes(cluster, nodes)
	}
	by, err := file.refusals(ctx, cluster, false)
	if err != nil {
		return nil, err
	}
	edit.AtSource = o.atSource
	found, err := preview.Render(cluster, edit, time.Now())
	if err != nil {
		return nil, err
	}
	// Of other objects that cannot be decoded, those that the policy uses are among the notes.
	if _, err := undecodableNotes(found.Policy, cluster, edit); err != nil {
		return nil, err
	}
	objects, err := asApplied(found.Objects)
	if err != nil {
		return nil, err
	}
	return &rendition{
		objects: objects, operatorImage: found.OperatorImage, mirror: found.Mirror,
		notes:      slices.Concat(by.sentences, aboutPause(found.Paused), found.Notes),
		imageNotes: slices.Concat(by.sentences, found.ImageNotes),
		refused:    by.with(found.Failed, found.Invalid),
	}, nil
}

// readCluster reads the cluster, with the kinds that flags say it serves.
func (o renderOptions) readCluster(ctx context.Context, edit preview.Edit) (*preview.Cluster, error) {
	cluster, err := planOptions{namespace: o.namespace, connection: o.connection}.askCluster(ctx, edit)
	if errors.Is(err, errNoCluster) || errors.As(err, &unreachable{}) {
		return nil, fmt.Errorf("%w; to call no cluster, give --filename and --nodes", err)
	}
	if err != nil {
		return nil, err
	}
	for _, kind := range manifest.OptionalKinds() {
		cluster.CRDs[kind.CRD] = cluster.CRDs[kind.CRD] || o.monitoring
	}
	return cluster, nil
}

// replaceNodes puts nodes in the place of those of the cluster.
func replaceNodes(cluster *preview.Cluster, nodes []corev1.Node) {
	cluster.Objects = slices.DeleteFunc(cluster.Objects, func(object manifest.Object) bool {
		_, isNode := object.(*corev1.Node)
		return isNode
	})
	for i := range nodes {
		nodes[i].SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		cluster.Objects = append(cluster.Objects, &nodes[i])
	}
}
