package main

import (
	"cmp"
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/cli/migrationsteps"
	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// The kinds that a migration reads besides those that exist only with their CRD.
const (
	migrationKinds = "serviceaccounts,roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io," +
		"configmaps,services,deployments.apps,daemonsets.apps"
	migrationClusterKinds = "nodes,clusterroles.rbac.authorization.k8s.io,clusterrolebindings.rbac.authorization.k8s.io"
)

// read reads what a migration depends on.
func (o *migrateOptions) read(ctx context.Context) (*migrationsteps.Facts, error) {
	facts := &migrationsteps.Facts{}
	add := keep(&facts.Objects)
	custom := append([]string{crd.Name, crd.NVIDIADriverName}, migrationsteps.NFDDefinitions()...)
	var kinds []string
	of := selection{resources: definitions, names: custom}
	err := o.asked.get(ctx, of, func(definition *unstructured.Unstructured) error {
		kinds = append(kinds, definition.GetName())
		return add(definition)
	})
	if err != nil {
		return nil, err
	}
	for _, of := range o.reads(kinds) {
		if err := o.asked.get(ctx, of, add); err != nil {
			return nil, err
		}
	}
	return facts, nil
}

// reads returns all that a migration depends on, with the custom kinds that exist.
func (o *migrateOptions) reads(kinds []string) []selection {
	reads := []selection{
		{resources: migrationClusterKinds + "," + migrationKinds, managers: true},
		{resources: "secrets", label: "owner=helm"},
	}
	if !o.toNVIDIA {
		// The way back reads all pods.
		reads = append(reads, selection{resources: "pods", label: labels.Component + "=" + labels.DriverComponent})
	}
	if len(kinds) > 0 {
		reads = append(reads, selection{resources: strings.Join(kinds, ",")})
	}
	if o.nodeDiscovery {
		reads = append(reads,
			selection{resources: "pods", label: labels.Operand + "=" + migrationsteps.DiscoveryOperand},
			selection{resources: "leases.coordination.k8s.io", fields: "metadata.name=" + migrationsteps.NFDLease})
	}
	return reads
}

// preview adds what this operator would do with the live policy.
func (o *migrateOptions) preview(ctx context.Context, facts *migrationsteps.Facts) error {
	live := facts.ActivePolicy()
	if live == nil {
		return nil
	}
	policy := &v1.ClusterPolicy{}
	text, err := live.MarshalJSON()
	if err == nil {
		err = customKinds().Check(text)
	}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, policy)
	}
	if facts.Unreadable = complaint("read", err); facts.Unreadable != "" {
		return nil
	}
	edit := preview.Edit{Policy: policy}
	reading := planOptions{namespace: cmp.Or(policy.Status.Namespace, facts.Namespace())}
	cluster, err := reading.readCluster(ctx, o.asked, edit)
	if err != nil {
		return err
	}
	facts.Preview, err = preview.Of(cluster, edit, time.Now())
	facts.Unreadable = complaint("applied", err)
	return nil
}

// complaint says that the policy cannot be read or applied, and why; empty without an error.
func complaint(what string, err error) string {
	if err == nil {
		return ""
	}
	return "the ClusterPolicy cannot be " + what + ": " + err.Error()
}
