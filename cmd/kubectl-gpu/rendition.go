package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/fieldnotes"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/stack/nvidiadriver"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
)

// rendition is what render and mirror print.
type rendition struct {
	// objects are those that would be applied, in that order.
	objects []*unstructured.Unstructured
	// operatorImage is the image of the operator, and mirror the registry of the policy that renderOptions.atSource has
	// removed; empty for none.
	operatorImage, mirror string
	// notes are sentences about the policy and the objects, and imageNotes those about images which are missing or may be
	// others.
	notes, imageNotes []string
	// refused is what the operator or the API server would refuse; nil if there is nothing.
	refused error
}

// compute reads the policy and the nodes, and computes what the operator would do.
func (o renderOptions) compute(cmd *cobra.Command) (*rendition, error) {
	file, nodes := &policyFile{}, []corev1.Node(nil)
	var err error
	if o.policy != "" {
		if file, err = readPolicy(o.policy, cmd.InOrStdin()); err != nil {
			return nil, fmt.Errorf("reading the policy %s: %w", o.policy, err)
		}
	}
	if o.nodes != "" {
		if nodes, err = readNodes(o.nodes, cmd.InOrStdin()); err != nil {
			return nil, fmt.Errorf("reading the nodes %s: %w", o.nodes, err)
		}
	}
	given, err := o.given()
	if err != nil {
		return nil, err
	}
	if o.policy != "" && o.nodes != "" {
		return o.computeFirst(cmd.Context(), file, nodes, given)
	}
	return o.computeLive(cmd.Context(), file, nodes, given)
}

// given returns what flags and their files say of the operator and of OpenShift.
func (o renderOptions) given() (found preview.Given, err error) {
	found = preview.Given{Image: o.image, Variables: o.env}
	if found.DriverToolkit, err = readDriverToolkit(o.toolkit); err != nil {
		return found, fmt.Errorf("reading the driver toolkit %s: %w", o.toolkit, err)
	}
	if found.OpenShift, err = readOpenShift(o.openShift); err != nil {
		return found, fmt.Errorf("reading the configuration of OpenShift %s: %w", o.openShift, err)
	}
	return found, nil
}

// firstInstallation is what the operator would do for the policy of a file on the nodes of a file, in a cluster without
// objects of the stack.
type firstInstallation struct {
	file  *policyFile
	input operand.Input
	plan  plan.Plan
	facts []nodeinfo.Facts
	// objects are those that would be applied, in that order. failed is why those of other operands cannot be rendered;
	// nil if there are none.
	objects []*unstructured.Unstructured
	failed  error
	// kept are sentences about nodes with labels of a running operator.
	kept []string
}

// computeFirst computes a first installation.
func (o renderOptions) computeFirst(
	ctx context.Context, file *policyFile, nodes []corev1.Node, given preview.Given,
) (*rendition, error) {
	by, err := file.refusals(ctx, nil, o.stored)
	if err != nil {
		return nil, err
	}
	mirror := ""
	if global := file.Policy.Spec.Global; o.atSource && global != nil {
		mirror, global.Registry = global.Registry, ""
	}
	catalogue, err := operands.Catalogue()
	if err != nil {
		return nil, err
	}
	found := &firstInstallation{file: file, input: o.input(file, given)}
	images, ignored := image.FromVariables(catalogue.Images(), o.env.get)
	found.input.Images = images
	found.input.Contents = catalogue.Assume(found.input, preview.ContentsOf(found.input.Namespace, file.Named))
	decisions := plan.Decide(catalogue, found.input)
	// The output must not depend on the order of the nodes in the file.
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].Name < nodes[j].Name })
	for i := range nodes {
		found.facts = append(found.facts, observe.Facts(preview.Unwritten(catalogue, &nodes[i])))
	}
	found.plan = found.planOf(decisions, found.facts)
	found.objects, found.failed = intents(found.plan, file.Policy)
	found.kept = found.keptBy(decisions, nodes)
	missing := slices.Concat(found.kept, aboutOperands(found.plan), aboutNodes(found.plan, found.facts))
	return &rendition{
		objects: found.objects, operatorImage: found.input.OperatorImage, mirror: mirror,
		notes: slices.Concat(by.sentences, aboutPause(found.input.Paused()), fieldnotes.Of(file.Policy.Spec),
			preview.AboutDrivers(file.Drivers, found.input), ignored, found.plan.Doubtful(),
			preview.Unread(found.plan.Catalogue, found.input), missing),
		imageNotes: slices.Concat(by.sentences, ignored, missing),
		refused:    by.with(found.failed, preview.Invalid(found.plan, found.facts)),
	}, nil
}

// planOf returns the plan for nodes.
func (r *firstInstallation) planOf(decisions *plan.Decisions, nodes []nodeinfo.Facts) plan.Plan {
	return plan.Compute(decisions, r.input.Optional, append(slices.Clone(nodes), decisions.StandIns(nodes, nil)...))
}

// input returns what a first installation decides from, without images and what the policy names.
func (o renderOptions) input(file *policyFile, given preview.Given) operand.Input {
	optional := map[operand.OptionalKind]bool{}
	for _, kind := range manifest.OptionalKinds() {
		optional[kind.Kind] = o.monitoring
	}
	in := operand.Input{
		Spec:             effective.Of(file.Policy.Spec),
		Namespace:        cmp.Or(o.namespace, defaultNamespace),
		OperatorImage:    cmp.Or(o.image, image.Own()),
		Proxy:            operand.ProxyFromVariables(o.env.get),
		Optional:         optional,
		DriverToolkit:    given.DriverToolkit,
		OpenShiftCluster: given.OpenShift,
	}
	if in.UsesNVIDIADrivers() && len(file.Drivers) > 0 {
		in.NVIDIADrivers = nvidiadriver.Declared(file.Policy.Spec, file.Drivers)
	}
	return in
}

// keptBy returns sentences about the nodes with labels of a running operator by which they keep something, and about
// the objects that differ with these labels.
func (r *firstInstallation) keptBy(decisions *plan.Decisions, nodes []corev1.Node) []string {
	var sentences []string
	var labelled []nodeinfo.Facts
	for i := range nodes {
		labelled = append(labelled, observe.Facts(preview.Settled(decisions, &nodes[i])))
		if preview.Keeps(decisions, &nodes[i]) {
			sentences = append(sentences, fmt.Sprintf("node %s has labels of a running operator, which may keep what the "+
				"node has; this is a first installation without them: kubectl gpu plan shows the cluster's", nodes[i].Name))
		}
	}
	if len(sentences) == 0 {
		return nil
	}
	kept, failed := intents(r.planOf(decisions, decisions.Relabel(labelled, nil)), r.file.Policy)
	if failed != nil && r.failed == nil {
		sentences = append(sentences, fmt.Sprintf("with the labels of a running operator: %v", failed))
	}
	return append(sentences, differing(r.objects, kept)...)
}

// differing returns a sentence for each object that differs with the labels of a running operator.
func differing(printed, kept []*unstructured.Unstructured) []string {
	const with = "with the labels of a running operator"
	var sentences []string
	for _, object := range printed {
		other := sameObject(kept, object)
		switch {
		case other == nil:
			sentences = append(sentences, fmt.Sprintf("%s %s would not be applied %s", object.GetKind(), object.GetName(), with))
		case !reflect.DeepEqual(object.Object, other.Object):
			sentences = append(sentences, fmt.Sprintf("%s %s would differ %s", object.GetKind(), object.GetName(), with))
		}
	}
	for _, object := range kept {
		if sameObject(printed, object) == nil {
			sentences = append(sentences, fmt.Sprintf("%s %s would be applied %s", object.GetKind(), object.GetName(), with))
		}
	}
	return sentences
}

// sameObject returns the one of the objects with the kind and the name of another; nil if there is none.
func sameObject(objects []*unstructured.Unstructured, of *unstructured.Unstructured) *unstructured.Unstructured {
	for _, object := range objects {
		if object.GetKind() == of.GetKind() && object.GetName() == of.GetName() {
			return object
		}
	}
	return nil
}

// documentsOf returns the objects as YAML documents.
func documentsOf(all []*unstructured.Unstructured) ([]byte, error) {
	var printed bytes.Buffer
	for _, intent := range all {
		text, err := yaml.Marshal(intent.Object)
		if err != nil {
			return nil, fmt.Errorf("encoding %s %s: %w", intent.GetKind(), intent.GetName(), err)
		}
		printed.WriteString("---\n")
		printed.Write(text)
	}
	return printed.Bytes(), nil
}

// intents are the objects of all steps, in the order in which they are applied. The error is about the operands whose
// objects cannot be rendered.
func intents(p plan.Plan, policy *v1.ClusterPolicy) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	var failed []error
	owner := render.Owner{Name: policy.Name, UID: string(policy.UID)}
	for _, step := range p.Steps {
		if step.Action != plan.Apply {
			continue
		}
		of, err := intentsOf(p, step, owner)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		all = append(all, of...)
	}
	return all, errors.Join(failed...)
}

// intentsOf are the objects of one step.
func intentsOf(p plan.Plan, step plan.Step, owner render.Owner) ([]*unstructured.Unstructured, error) {
	rendered, err := render.Step(p, step, owner, nil)
	if err != nil {
		return nil, err
	}
	return asApplied(rendered)
}

// asApplied returns objects as they are applied, without an owner whose UID is not known.
func asApplied(rendered []manifest.Object) ([]*unstructured.Unstructured, error) {
	all := make([]*unstructured.Unstructured, 0, len(rendered))
	for _, object := range rendered {
		intent, err := apply.Intent(object)
		if err != nil {
			return nil, err
		}
		intent.SetOwnerReferences(slices.DeleteFunc(intent.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
			return owner.UID == ""
		}))
		all = append(all, intent)
	}
	return all, nil
}
