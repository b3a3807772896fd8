package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"
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
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/stack/nvidiadriver"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
)

// rendition is what the operator would do for a policy on the nodes of a file.
type rendition struct {
	file  *policyFile
	input operand.Input
	plan  plan.Plan
	facts []nodeinfo.Facts
	// objects are those that would be applied, in that order. failed is why those of other operands cannot be rendered;
	// nil if there are none.
	objects []*unstructured.Unstructured
	failed  error
	ignored []string
	// kept are sentences about nodes with labels of a running operator.
	kept []string
}

// err returns an error that names what the operator or the API server would refuse; nil if there is nothing.
func (r *rendition) err(by refusals) error {
	return errors.Join(r.failed, errInvalid(preview.Invalid(r.plan, r.facts), by.objects, "reasons above"))
}

// compute reads the nodes, and computes what the operator would do on them.
func (o renderOptions) compute(file *policyFile, in io.Reader) (*rendition, error) {
	nodes, err := readNodes(o.nodes, in)
	if err != nil {
		return nil, fmt.Errorf("reading the nodes %s: %w", o.nodes, err)
	}
	catalogue, err := operands.Catalogue()
	if err != nil {
		return nil, err
	}
	found := &rendition{file: file, input: o.input(file)}
	found.input.Images, found.ignored = image.FromVariables(catalogue.Images(), o.env.get)
	found.ignored = append(found.ignored, image.Unused(o.env.get)...)
	if found.input.DriverToolkit, err = readDriverToolkit(o.toolkit); err != nil {
		return nil, fmt.Errorf("reading the driver toolkit %s: %w", o.toolkit, err)
	}
	if found.input.OpenShiftCluster, err = readOpenShift(o.openShift); err != nil {
		return nil, fmt.Errorf("reading the configuration of OpenShift %s: %w", o.openShift, err)
	}
	found.input.Contents = catalogue.Assume(found.input, preview.ContentsOf(o.namespace, file.Named))
	decisions := plan.Decide(catalogue, found.input)
	// The output must not depend on the order of the nodes in the file.
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].Name < nodes[j].Name })
	for i := range nodes {
		found.facts = append(found.facts, observe.Facts(preview.Unwritten(catalogue, &nodes[i])))
	}
	found.plan = found.planOf(decisions, found.facts)
	found.objects, found.failed = intents(found.plan, file.Policy)
	found.kept = found.keptBy(decisions, nodes)
	return found, nil
}

// planOf returns the plan for nodes, in a cluster without objects of the stack.
func (r *rendition) planOf(decisions *plan.Decisions, nodes []nodeinfo.Facts) plan.Plan {
	return plan.Compute(decisions, r.input.Optional, append(slices.Clone(nodes), decisions.StandIns(nodes, nil)...))
}

func (o renderOptions) input(file *policyFile) operand.Input {
	optional := map[operand.OptionalKind]bool{}
	for _, kind := range manifest.OptionalKinds() {
		optional[kind.Kind] = o.monitoring
	}
	in := operand.Input{
		Spec:          effective.Of(file.Policy.Spec),
		Namespace:     o.namespace,
		OperatorImage: o.image,
		Proxy:         operand.ProxyFromVariables(o.env.get),
		Optional:      optional,
	}
	if in.UsesNVIDIADrivers() && len(file.Drivers) > 0 {
		in.NVIDIADrivers = nvidiadriver.Declared(file.Policy.Spec, file.Drivers)
	}
	return in
}

// keptBy returns sentences about the nodes with labels of a running operator by which they keep something, and about
// the objects that differ with these labels.
func (r *rendition) keptBy(decisions *plan.Decisions, nodes []corev1.Node) []string {
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
	all := make([]*unstructured.Unstructured, 0, len(rendered))
	for _, object := range rendered {
		intent, err := apply.Intent(object)
		if err != nil {
			return nil, err
		}
		if owner.UID == "" {
			intent.SetOwnerReferences(nil)
		}
		all = append(all, intent)
	}
	return all, nil
}
