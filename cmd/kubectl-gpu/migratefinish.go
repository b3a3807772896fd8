package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/cli/migrationsteps"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// pollInterval is the time between two looks at nodes.
const pollInterval = 2 * time.Second

// runFinish removes what is left of NVIDIA's operator and, with --node-discovery, Node Feature Discovery.
func (o *migrateOptions) runFinish(cmd *cobra.Command, facts *migrationsteps.Facts) error {
	if refusal := facts.FinishRefusal(); refusal != "" {
		return errors.New(refusal)
	}
	steps := facts.Finish()
	if o.nodeDiscovery {
		if refusal := facts.HandOverRefusal(); refusal != "" {
			return errors.New(refusal + "; nothing was changed")
		}
		steps = append(steps, facts.HandOver(o.removeLabels)...)
		for _, note := range facts.HandOverNotes(o.removeLabels) {
			fmt.Fprintln(cmd.OutOrStdout(), note)
		}
	}
	return o.carryOut(cmd, steps)
}

// takeOnNodes takes a step that is about nodes.
func (o *migrateOptions) takeOnNodes(ctx context.Context, out io.Writer, step *migrationsteps.Step) error {
	switch step.Action {
	case migrationsteps.ActionRecordLayout:
		return o.patchNodes(ctx, step.Nodes, recordLayout)
	case migrationsteps.ActionAwaitLabels:
		fmt.Fprintf(out, "Waiting until node-discovery has taken over the labels of %s\n", count(len(step.Nodes), "node"))
		return o.awaitLabels(ctx, step.Nodes)
	case migrationsteps.ActionHandOver:
		return o.patchNodes(ctx, step.Nodes, migrationsteps.HandOver)
	default:
		return o.patchNodes(ctx, step.Nodes, migrationsteps.RemoveUnknown)
	}
}

// recordLayout is the merge patch which records that the MIG layout of a node is not a user's; nil if the node has a
// record.
func recordLayout(node *unstructured.Unstructured) map[string]any {
	if _, recorded := node.GetAnnotations()[labels.MIGConfigWritten]; recorded {
		return nil
	}
	return map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{labels.MIGConfigWritten: labels.MIGAllDisabled},
	}}
}

// patchNodes applies to each node the merge patch that change returns for it.
func (o *migrateOptions) patchNodes(
	ctx context.Context, names []string, change func(*unstructured.Unstructured) map[string]any,
) error {
	patches := map[string]map[string]any{}
	err := o.asked.get(ctx, selection{resources: "nodes"}, func(node *unstructured.Unstructured) error {
		if patch := change(node); patch != nil && slices.Contains(names, node.GetName()) {
			patches[node.GetName()] = patch
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		if patch := patches[name]; patch != nil {
			if err := o.asked.merge(ctx, target{resource: "nodes", name: name}, patch); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitLabels waits until node discovery writes the labels of these nodes.
func (o *migrateOptions) awaitLabels(ctx context.Context, names []string) error {
	deadline := time.Now().Add(o.timeout)
	for {
		var left []string
		err := o.asked.get(ctx, selection{resources: "nodes"}, func(node *unstructured.Unstructured) error {
			if slices.Contains(names, node.GetName()) && !migrationsteps.IsTakenOver(node) {
				left = append(left, node.GetName())
			}
			return nil
		})
		switch {
		case err != nil || len(left) == 0:
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("node-discovery has not taken over %s after %s: see its pods there; no label is missing",
				strings.Join(left, ", "), o.timeout)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for node-discovery: %w", ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}
