package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/kube/podrules"
	"github.com/clusterpolicy/gpu-operator/internal/kube/schemacheck"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/fieldnotes"
	"github.com/clusterpolicy/gpu-operator/internal/policy/undecodable"
)

func validateCommand() *cobra.Command {
	o := validateOptions{}
	command := &cobra.Command{
		Use:   "validate -f FILE",
		Short: "Check ClusterPolicies and NVIDIADrivers in files as the API server would, without a cluster",
		Long: `Check the ClusterPolicies and NVIDIADrivers in a file, or in all files below a folder, with the schema and the
rules of this release, as the API server does when they are created, and report fields that it does not know, and values
that no pod can have, which the operator refuses where it makes pods of them. It also prints the fields of policies that
have no effect or are deprecated, which are no errors. No cluster is called: webhooks and policies of one are not asked.

A ConfigMap, Secret, PriorityClass or ValidatingAdmissionPolicyBinding in the file is an error if the API server could
not decode it or does not know a field; a valid one is not counted. Objects of other kinds are ignored.

Of a folder the files are read whose name ends with .yaml, .yml or .json, in the order of their paths. Those without a
ClusterPolicy or an NVIDIADriver are skipped and counted. -o json and -o junit have a result for each error and note,
and one for each valid object: with its file, line, field, severity (error, note or valid) and message. The line is that
of the field, or of the nearest one above it; it is not known of objects in a list.

Exit codes: 0 all objects are valid, 1 one is not or a file cannot be read, 2 wrong usage.`,
		Example: `  kubectl gpu validate -f policy.yaml
  kubectl gpu validate -f clusters/ -o junit > results.xml
  helm template gpu-operator gpu-operator | kubectl gpu validate -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("output", o.output, validateFormats); err != nil {
				return err
			}
			if err := o.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout()); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVarP(&o.path, "filename", "f", "", "file with the objects, or folder of such files; - reads "+
		"standard input")
	flags.StringVarP(&o.output, "output", "o", formatText, "format of the output: text, json or junit")
	requireFlags(command, "filename")
	completeFlag(command, "output", fixed(validateFormats...))
	return command
}

// run prints what is wrong with the objects, and fails if something is.
func (o validateOptions) run(ctx context.Context, in io.Reader, out io.Writer) error {
	found, err := o.validate(ctx, in)
	if err != nil {
		return err
	}
	text, err := found.encode(o.output)
	if err != nil {
		return fmt.Errorf("encoding the results: %w", err)
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return found.verdict()
}

// problem is what is wrong with an object, or only worth to know.
type problem struct {
	// field is the path of the value; empty if the message is about all of the object.
	field, message string
}

// String returns both.
func (p problem) String() string {
	if p.field == "" {
		return p.message
	}
	return p.field + ": " + p.message
}

// problemIn returns the problem of a sentence that begins with the field and a colon.
func problemIn(sentence string) problem {
	field, message, _ := strings.Cut(sentence, ": ")
	return problem{field, message}
}

// checkNew returns what the API server or the operator would refuse of an object, and what it is only worth to know.
func checkNew(ctx context.Context, definition crd.Definition, document []byte) (problems, notes []problem, err error) {
	problems, notes, err = checkObject(ctx, definition, document)
	if err == nil && len(problems) == 0 && definition.Kind == v1.ClusterPolicyKind {
		problems, err = unknownContainers(document)
	}
	return problems, notes, err
}

// checkNamed returns why the API server would refuse an object that a policy may name, such as a ConfigMap; nil for
// another kind.
func checkNamed(document []byte) []problem {
	object := newNamed(kindOf(document))
	if object == nil {
		return nil
	}
	if err := decodeNamed(document, object); err != nil {
		return []problem{{message: err.Error()}}
	}
	return nil
}

// definitionOf returns the definition of this release for the kind of a document; false if it is another kind. A
// version that it does not have is reported by checkObject.
func definitionOf(document []byte) (crd.Definition, bool) {
	kind := kindOf(document)
	for _, definition := range crd.All() {
		if definition.Kind.GroupKind() == kind.GroupKind() {
			return definition, true
		}
	}
	return crd.Definition{}, false
}

// checkers are those of the definitions of this release, by kind: to make one takes longer than to check many objects.
var checkers = struct {
	lock   sync.Mutex
	byKind map[schema.GroupVersionKind]*schemacheck.Checker
}{byKind: map[schema.GroupVersionKind]*schemacheck.Checker{}}

// checkerOf returns the checker of a definition.
func checkerOf(definition crd.Definition) (*schemacheck.Checker, error) {
	checkers.lock.Lock()
	defer checkers.lock.Unlock()
	if made := checkers.byKind[definition.Kind]; made != nil {
		return made, nil
	}
	made, err := schemacheck.New(definition.Text, definition.Kind.Version)
	if err != nil {
		return nil, fmt.Errorf("the definition of %s is broken, which is a bug in this program: %w",
			definition.Kind.Kind, err)
	}
	checkers.byKind[definition.Kind] = made
	return made, nil
}

// checkObject returns what the API server would refuse, and what it is only worth to know.
func checkObject(
	ctx context.Context, definition crd.Definition, document []byte,
) (problems, notes []problem, err error) {
	if version := kindOf(document).GroupVersion(); version != definition.Kind.GroupVersion() {
		message := fmt.Sprintf("%s is not served: give %s", version, definition.Kind.GroupVersion())
		return []problem{{"apiVersion", message}}, nil, nil
	}
	object, malformed := decodeObject(document)
	if malformed != "" {
		return []problem{{message: malformed}}, nil, nil
	}
	checker, err := checkerOf(definition)
	if err != nil {
		return nil, nil, err
	}
	found := checker.Check(ctx, object)
	problems = problemsIn(found.Refused)
	for _, path := range found.Dropped {
		problems = append(problems, problem{path, "unknown field: remove it, or correct its name"})
	}
	if found.RulesSkipped {
		notes = append(notes, problem{
			message: "rules about several fields were not checked: correct the errors, and check again",
		})
	}
	if len(problems) > 0 {
		return problems, notes, nil
	}
	if definition.Kind != v1.ClusterPolicyKind {
		driver := v1alpha1.NVIDIADriver{}
		if err := yaml.Unmarshal(document, &driver); err != nil {
			return nil, nil, err
		}
		return impossible(driver.Spec), notes, nil
	}
	policy := v1.ClusterPolicy{}
	if err := yaml.Unmarshal(document, &policy); err != nil {
		return nil, nil, err
	}
	for _, note := range fieldnotes.Of(policy.Spec) {
		notes = append(notes, problemIn(strings.TrimSuffix(note, ".")))
	}
	catalogue, err := operands.Catalogue()
	if err != nil {
		return nil, nil, err
	}
	problems, unread := impossibleOf(policy.Spec, catalogue)
	return problems, append(notes, unread...), nil
}

// impossibleOf returns what the API server stores and no pod can have of a policy. In the block of an operand that is
// not installed it is only worth to know: the operator makes no pods of it.
func impossibleOf(spec v1.ClusterPolicySpec, catalogue operand.Catalogue) (problems, notes []problem) {
	absent := absentBlocks(catalogue, operand.Input{Spec: effective.Of(spec)})
	for _, found := range impossible(spec) {
		inBlock := func(block string) bool { return strings.HasPrefix(found.field, block+".") }
		if i := slices.IndexFunc(absent, inBlock); i >= 0 {
			found.message += "; nothing of " + absent[i] + " is installed"
			notes = append(notes, found)
			continue
		}
		problems = append(problems, found)
	}
	return problems, notes
}

// absentBlocks returns the blocks of the spec of which no operand is installed, sorted.
func absentBlocks(catalogue operand.Catalogue, in operand.Input) []string {
	installed := map[string]bool{}
	for i := range catalogue {
		o := &catalogue[i]
		if block := in.PlacementOf(o).Field; block != "" {
			installed[block] = installed[block] || o.Decide(in).Choice != operand.Absent
		}
	}
	maps.DeleteFunc(installed, func(_ string, is bool) bool { return is })
	return slices.Sorted(maps.Keys(installed))
}

// impossible returns what the API server stores and no pod can have of an object: the operator refuses it.
func impossible(spec any) (problems []problem) {
	for _, found := range podrules.Check(spec, "spec") {
		problems = append(problems, problem{found.Field + found.Below, found.Message})
	}
	return problems
}

// problemsIn returns what the API server would refuse, each once.
func problemsIn(refused field.ErrorList) []problem {
	var problems []problem
	for _, err := range refused {
		if !isRepeated(err, refused) {
			problems = append(problems, problemOf(err))
		}
	}
	return problems
}

// noField is the field of an error of the API server that has none.
const noField = "<nil>"

// isRepeated reports whether the API server's error has no field, and another one is about the field that its text ends
// with, as for a number that is too large.
func isRepeated(err *field.Error, all field.ErrorList) bool {
	return err.Field == noField && slices.ContainsFunc(all, func(other *field.Error) bool {
		return other != err && strings.HasSuffix(err.Detail, " in "+other.Field)
	})
}

// problemOf returns the API server's error, with the right form where it has none that people read.
func problemOf(err *field.Error) problem {
	found := problem{err.Field, err.ErrorBody() + hintFor(err)}
	if strings.Contains(err.Detail, undecodable.Quantity) {
		found.message = fmt.Sprintf("Invalid value: %q: is no quantity such as 500m, 2 or 4Gi, with %s",
			fmt.Sprint(err.BadValue), undecodable.QuantityBounds)
	}
	if err.Field == noField {
		found.field = ""
	}
	return found
}

// hintFor returns the right form where the API server's error names the types alone; empty if that says enough.
func hintFor(err *field.Error) string {
	block, isImage := strings.CutSuffix(err.Field, ".image")
	if !isImage || err.Type != field.ErrorTypeTypeInvalid {
		return ""
	}
	return fmt.Sprintf(": set %s.repository, %[1]s.image and %[1]s.version, each to a text", block)
}

// decodeObject decodes a document, or returns why it cannot.
func decodeObject(document []byte) (object *unstructured.Unstructured, malformed string) {
	text, err := yaml.YAMLToJSONStrict(document)
	if err == nil {
		object = &unstructured.Unstructured{}
		err = object.UnmarshalJSON(text)
	}
	if err != nil {
		return nil, err.Error()
	}
	return object, ""
}
