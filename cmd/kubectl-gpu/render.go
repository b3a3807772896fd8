package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sort"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/apply"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/fieldnotes"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/nvidiadriver"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/internal/preview"
	"github.com/clusterpolicy/gpu-operator/internal/render"
	"github.com/clusterpolicy/gpu-operator/internal/version"
)

// renderOptions are the flags of render.
type renderOptions struct {
	policy, nodes    string
	namespace, image string
	// server is the version of the cluster's Kubernetes, empty if not given.
	server     string
	monitoring bool
	// env are variables of the operator that replace default images, or name its proxy.
	env environment
	// toolkit is the file with the ImageStream of OpenShift's driver toolkit, empty if not given.
	toolkit string
}

// renderHelp is the description of render.
const renderHelp = `Print every object that the operator would apply for a ClusterPolicy on these nodes, as YAML.

It reads the policy and the nodes from files and contacts no cluster. What would not be applied is listed
on standard error, with one line for each operand and for each node on which an operand does not run, and so is what
the API server would refuse: see kubectl gpu validate.

Objects that the policy names may be in its file: ConfigMaps, of which the driver's pods mount each key, Secrets and
PriorityClasses. Each that is not there counts as existing, and is listed on standard error: what follows from its
content is missing, such as mounts and digests. NVIDIADrivers must be in the file if the policy uses them
(spec.driver.useNvidiaDriverCRD). If the operator has variables for default images or for its proxy, repeat them with
--env. Its flags count as the defaults.

The objects are those of a first installation, in a cluster that has none of them. What an operator has written on the
nodes of a running cluster does not count; nodes that would keep something because of it are listed on standard error.
Owner references are omitted if the policy has no UID, and the digest of an object has them. The annotation with the
applied spec is always omitted.

Exit codes: 0 success, also if something was not read; 1 a file cannot be read, or the API server or the operator would
refuse the policy, an operand, a node pool, an NVIDIADriver or the driver of a node; 2 wrong usage.`

func renderCommand() *cobra.Command {
	o, env := renderOptions{}, []string(nil)
	command := &cobra.Command{
		Use:   "render -f POLICY --nodes NODES",
		Short: "Print what the operator would apply for a policy and these nodes, without a cluster",
		Long:  renderHelp,
		Example: `  kubectl get nodes -o yaml > nodes.yaml
  kubectl gpu render -f policy.yaml --nodes nodes.yaml > objects.yaml
  kubectl gpu render -f policy.yaml --nodes nodes.yaml --env HTTPS_PROXY=http://proxy.example.com`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkFiles(); err != nil {
				return err
			}
			if err := o.checkServer(cmd.ErrOrStderr()); err != nil {
				return err
			}
			var err error
			if o.env, err = environmentOf(env); err != nil {
				return err
			}
			if err := o.run(cmd); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVarP(&o.policy, "filename", "f", "", "file with the ClusterPolicy; - reads standard input")
	flags.StringVar(&o.nodes, "nodes", "",
		"file with the Nodes, as kubectl get nodes -o yaml prints them; - reads standard input")
	flags.StringVarP(&o.namespace, "namespace", "n", "gpu-operator", "namespace of the operator and its operands")
	flags.StringVar(&o.image, "image", image.Own(), "image of the operator")
	flags.StringArrayVar(&env, "env", nil,
		"variable of the operator, as NAME=VALUE, such as DRIVER_IMAGE=... or HTTPS_PROXY=...; may be repeated")
	flags.BoolVar(&o.monitoring, "monitoring", false, "the cluster serves the kinds of the Prometheus operator")
	flags.StringVar(&o.server, "server-version", "", fmt.Sprintf(
		"version of the cluster's Kubernetes, such as v%s.0, to warn if it is not supported; it does not change the objects",
		version.NewestKubernetes))
	o.addToolkit(flags)
	for _, required := range []string{"filename", "nodes"} {
		if err := command.MarkFlagRequired(required); err != nil {
			panic(err) // The flag is defined above.
		}
	}
	return command
}

// addToolkit adds the flag for the images of OpenShift's driver toolkit.
func (o *renderOptions) addToolkit(flags *pflag.FlagSet) {
	flags.StringVar(&o.toolkit, "driver-toolkit-images", "",
		"file with the ImageStream of OpenShift's driver toolkit, as oc get -n openshift imagestream driver-toolkit -o "+
			"yaml prints it")
}

// checkFiles fails if two files are standard input.
func (o renderOptions) checkFiles() error {
	if o.policy == stdin && o.nodes == stdin {
		return errors.New("the policy and the nodes cannot both come from standard input: give one of them as a file")
	}
	return nil
}

// checkServer warns if the cluster's version is not supported. It fails if the version cannot be parsed.
func (o renderOptions) checkServer(stderr io.Writer) error {
	if o.server == "" {
		return nil
	}
	sentence, err := version.OutOfRange(o.server)
	if err != nil {
		return fmt.Errorf("--server-version: %w", err)
	}
	if sentence != "" {
		fmt.Fprintln(stderr, "warning:", sentence)
	}
	return nil
}

// rendition is what the operator would do for a policy on the nodes of a file.
type rendition struct {
	file    *policyFile
	input   operand.Input
	plan    plan.Plan
	facts   []nodeinfo.Facts
	ignored []string
	// kept are sentences about nodes with labels of a running operator.
	kept []string
}

// err returns an error that names what the operator or the API server would refuse; nil if there is nothing.
func (r *rendition) err(by refusals) error {
	return errInvalid(preview.Invalid(r.plan, r.facts), by.objects, "reasons above")
}

func (o renderOptions) run(cmd *cobra.Command) error {
	file, err := readPolicy(o.policy, cmd.InOrStdin())
	if err != nil {
		return fmt.Errorf("reading the policy %s: %w", o.policy, err)
	}
	by, err := file.refusals(cmd.Context(), nil)
	if err != nil {
		return err
	}
	found, err := o.compute(file, cmd.InOrStdin())
	if err != nil {
		return err
	}
	printed, err := objects(found.plan, file.Policy)
	if err != nil {
		return err
	}
	if _, err := cmd.OutOrStdout().Write(printed); err != nil {
		return fmt.Errorf("writing the objects: %w", err)
	}
	for _, sentence := range slices.Concat(
		by.sentences, aboutPause(found.input), fieldnotes.Of(file.Policy.Spec),
		preview.AboutDrivers(file.Drivers, found.input), found.ignored, found.plan.Doubtful(),
		preview.Unread(found.plan.Catalogue, found.input), found.kept, aboutOperands(found.plan),
		aboutNodes(found.plan, found.facts),
	) {
		fmt.Fprintln(cmd.ErrOrStderr(), sentence)
	}
	return found.err(by)
}

// compute reads the nodes, and computes what the operator would do on them.
func (o renderOptions) compute(file *policyFile, in io.Reader) (*rendition, error) {
	nodes, err := readNodes(o.nodes, in)
	if err != nil {
		return nil, fmt.Errorf("reading the nodes %s: %w", o.nodes, err)
	}
	catalogue, err := operands.Catalogue()
	if err != nil {
		return nil, fmt.Errorf("the catalogue of operands is invalid, which is a bug in the operator: %w", err)
	}
	found := &rendition{file: file, input: o.input(file)}
	found.input.Images, found.ignored = image.FromVariables(catalogue.Images(), o.env.get)
	found.ignored = append(found.ignored, image.Unused(o.env.get)...)
	if found.input.DriverToolkit, err = readDriverToolkit(o.toolkit); err != nil {
		return nil, fmt.Errorf("reading the driver toolkit %s: %w", o.toolkit, err)
	}
	found.input.Contents = catalogue.Assume(found.input, preview.ContentsOf(o.namespace, file.Named))
	decisions := plan.Decide(catalogue, found.input)
	// The output must not depend on the order of the nodes in the file.
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].Name < nodes[j].Name })
	for i := range nodes {
		found.facts = append(found.facts, observe.Facts(preview.Unwritten(catalogue, &nodes[i])))
	}
	found.plan = found.planOf(decisions, found.facts)
	found.kept, err = found.keptBy(decisions, nodes)
	return found, err
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
func (r *rendition) keptBy(decisions *plan.Decisions, nodes []corev1.Node) ([]string, error) {
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
		return nil, nil
	}
	printed, err := intents(r.plan, r.file.Policy)
	if err != nil {
		return nil, err
	}
	kept, err := intents(r.planOf(decisions, decisions.Relabelled(labelled, nil)), r.file.Policy)
	if err != nil {
		return nil, err
	}
	return append(sentences, differing(printed, kept)...), nil
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

// objects returns the objects of all steps as YAML documents, in the order in which they are applied.
func objects(p plan.Plan, policy *v1.ClusterPolicy) ([]byte, error) {
	var printed bytes.Buffer
	all, err := intents(p, policy)
	if err != nil {
		return nil, err
	}
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

// intents are the objects of all steps, in the order in which they are applied.
func intents(p plan.Plan, policy *v1.ClusterPolicy) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	owner := render.Owner{Name: policy.Name, UID: string(policy.UID)}
	for _, step := range p.Steps {
		if step.Action != plan.Apply {
			continue
		}
		rendered, err := render.Step(p, step, owner, nil)
		if err != nil {
			return nil, err
		}
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
	}
	return all, nil
}

// aboutPause returns a line if the operator would apply nothing.
func aboutPause(in operand.Input) []string {
	if !in.Paused() {
		return nil
	}
	return []string{"spec.paused is true: the operator would only report. Without it, it would apply these objects"}
}

// aboutOperands returns a line for each operand that would not be applied and each node pool and NVIDIADriver that is
// refused, with the reason.
func aboutOperands(p plan.Plan) []string {
	var sentences []string
	for _, step := range p.Steps {
		switch step.Action {
		case plan.Remove:
			sentences = append(sentences, fmt.Sprintf(
				"%s would not be installed, and an installed one would be removed: %s (%s)",
				step.Operand.Name, step.Message, step.State))
		case plan.Hold:
			sentences = append(sentences, fmt.Sprintf(
				"%s would not be applied, and an installed one would stay unchanged: %s (%s, %s)",
				step.Operand.Name, step.Message, step.State, step.Reason))
		case plan.Apply:
		}
	}
	for _, pool := range p.NodePools {
		if pool.Decision.Choice != operand.Install {
			sentences = append(sentences,
				fmt.Sprintf("node pool %s would have no effect: %s (%s)", pool.Name, pool.Decision.Message, pool.Decision.Reason))
		}
	}
	for _, driver := range p.RefusedDrivers() {
		sentences = append(sentences, fmt.Sprintf("%s (%s)", driver.Decision.Message, driver.Decision.Reason))
	}
	return sentences
}

// aboutNodes returns a line for each GPU node and operand that would be installed but not run on that node.
func aboutNodes(p plan.Plan, nodes []nodeinfo.Facts) []string {
	held := map[operand.Name]bool{}
	for _, step := range p.Steps {
		held[step.Operand.Name] = step.Action == plan.Hold
	}
	var sentences []string
	for _, facts := range nodes {
		if !facts.Managed() {
			continue
		}
		if facts.ExcludedByLabel {
			sentences = append(sentences,
				fmt.Sprintf("node %s would run no operand: label %s is %q", facts.Name, labels.DeployOperands, labels.False))
			continue
		}
		node := p.ForNode(facts)
		if node.Decision.Choice != operand.Install {
			sentences = append(sentences, fmt.Sprintf("node %s would run no operand: %s", facts.Name, node.Decision.Message))
			continue
		}
		for _, onNode := range append(node.Essential, node.Auxiliary...) {
			if why := whyNot(onNode); why != "" && !held[onNode.Operand] {
				sentences = append(sentences, fmt.Sprintf("node %s would not run %s: %s", facts.Name, onNode.Operand, why))
			}
		}
	}
	return sentences
}

// whyNot returns why an operand does not run on its node; empty if it does.
func whyNot(onNode plan.OperandOnNode) string {
	switch onNode.Expectation {
	case plan.HostProvides:
		return "the host provides it"
	case plan.OptedOut, plan.PausedByLabel, plan.Refused:
		return fmt.Sprintf("%s (%s)", onNode.Message, onNode.Reason)
	case plan.Expected:
	}
	return ""
}
