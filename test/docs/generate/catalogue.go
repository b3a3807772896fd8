package main

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/test/scenarios"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// base is, with all operands enabled, a spec that installs the operands which the default spec leaves out.
const base = `{devicePlugin: {config: {name: shared}}}`

// alternative is a spec, laid over base, that may turn an operand off: its field with a value by which the operand is
// on, and with the value by which it is off.
type alternative struct{ on, off, spec string }

// substitutes are fields that may turn an operand on in place of another one: each with a spec that is laid over one
// that turns the operand off.
var substitutes = []struct{ field, spec string }{{"spec.sharing.mps", `{sharing: {mps: {replicas: 2}}}`}}

// alternatives are the fields that turn operands on and off: enabled of each block, and those that do it otherwise.
func alternatives() ([]alternative, error) {
	all := []alternative{
		{"spec.nodeDiscovery.mode: auto", "spec.nodeDiscovery.mode: nfd", `{nodeDiscovery: {mode: nfd}}`},
		{"spec.cdi.nriPluginEnabled: false", "spec.cdi.nriPluginEnabled: true", `{cdi: {nriPluginEnabled: true}}`},
		{"spec.devicePlugin.config.name", "spec.devicePlugin.config.name: \"\"", `{devicePlugin: {config: {name: ""}}}`},
	}
	definition := map[string]any{}
	if err := yaml.Unmarshal(crd.ClusterPolicy, &definition); err != nil {
		return nil, err
	}
	for block, schema := range properties(properties(crd.Schema(definition))["spec"]) {
		if properties(schema)["enabled"] != nil {
			field := "spec." + block + ".enabled: "
			all = append(all, alternative{field + "true", field + "false", fmt.Sprintf(`{%s: {enabled: false}}`, block)})
		}
	}
	const agent = "spec.health.agent.enabled: "
	all = append(all, alternative{agent + "true", agent + "false", `{health: {agent: {enabled: false}}}`})
	slices.SortFunc(all, func(a, b alternative) int { return strings.Compare(a.on, b.on) })
	return all, nil
}

func properties(schema any) map[string]any {
	object, _ := schema.(map[string]any)
	inner, _ := object["properties"].(map[string]any)
	return inner
}

// inputOf is the input of specs that are given in YAML, each laid over the one before, and over base if that is wanted.
func inputOf(overBase bool, specs ...string) (operand.Input, error) {
	parsed := v1.ClusterPolicySpec{}
	if overBase {
		specgen.EnableAll(&parsed)
		if err := yaml.UnmarshalStrict([]byte(base), &parsed); err != nil {
			return operand.Input{}, err
		}
	}
	for _, spec := range specs {
		if err := yaml.UnmarshalStrict([]byte(spec), &parsed); err != nil {
			return operand.Input{}, err
		}
	}
	const helper = "ghcr.io/clusterpolicy/gpu-operator:dev"
	return operand.Input{Spec: effective.Of(parsed), Namespace: "gpu-operator", OperatorImage: helper}, nil
}

// installed reports whether the operand is installed by specs, each laid over the one before.
func installed(op operand.Operand, overBase bool, specs ...string) (bool, error) {
	in, err := inputOf(overBase, specs...)
	if err != nil {
		return false, err
	}
	return op.Decide(in).Choice == operand.Install, nil
}

// enabledBy returns whether the operand is installed by default, and the fields that turn it off, or else on.
func enabledBy(op operand.Operand, all []alternative) (string, error) {
	var on, off []string
	for _, other := range all {
		stays, err := installed(op, true, other.spec)
		if err != nil {
			return "", fmt.Errorf("%s: %w", other.off, err)
		}
		if stays {
			continue
		}
		fields, err := turnsOn(op, other)
		if err != nil {
			return "", err
		}
		on, off = append(on, fields), append(off, code(other.off))
	}
	byDefault, err := installed(op, false, "{}")
	switch {
	case err != nil:
		return "", err
	case len(off) == 0:
		return "always", nil
	case byDefault:
		return "by default; not with " + strings.Join(off, " or "), nil
	default:
		return "with " + strings.Join(on, ", and "), nil
	}
}

// turnsOn returns the field by which the operand is on, and those that may take its place.
func turnsOn(op operand.Operand, of alternative) (string, error) {
	fields := code(of.on)
	for _, other := range substitutes {
		isOn, err := installed(op, true, of.spec, other.spec)
		if err != nil {
			return "", fmt.Errorf("%s: %w", other.field, err)
		}
		if isOn {
			fields += " or " + code(other.field)
		}
	}
	return fields, nil
}

// mainContainers returns the main container of each operand that has pods.
func mainContainers(catalogue []operand.Operand) (map[operand.Name]string, error) {
	in, err := inputOf(true, "{}")
	if err != nil {
		return nil, err
	}
	nodes := slices.Clone(scenarios.All["mig"].Nodes)
	for i := range nodes {
		nodes[i].MIGCapable, nodes[i].MPSCapable = "true", "true"
	}
	found := map[operand.Name]string{}
	for _, step := range plan.Compute(plan.Decide(catalogue, in), nil, nodes).Steps {
		if step.Action != plan.Apply {
			return nil, fmt.Errorf("%s is not applied: %s", step.Operand.Name, step.Message)
		}
		for _, instance := range step.Instances {
			found[step.Operand.Name] = instance.Main
		}
	}
	return found, nil
}

// folderOf is the folder of an operand's package.
func folderOf(name operand.Name) string {
	return "internal/operand/operands/" + strings.ReplaceAll(string(name), "-", "")
}

// catalogueTable has a row for each operand.
func catalogueTable(repo string) (string, error) {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return "", err
	}
	_, docs, err := packageDocs(repo)
	if err != nil {
		return "", err
	}
	mains, err := mainContainers(catalogue)
	if err != nil {
		return "", err
	}
	fields, err := alternatives()
	if err != nil {
		return "", err
	}
	var rows [][]string
	for _, op := range catalogue {
		does, found := docs[folderOf(op.Name)]
		if !found {
			return "", fmt.Errorf("%s has no package %s", op.Name, folderOf(op.Name))
		}
		enabled, err := enabledBy(op, fields)
		if err != nil {
			return "", err
		}
		does = strings.TrimPrefix(does, "is the operand that ")
		rows = append(rows, []string{
			code(string(op.Name)), does, code(mains[op.Name]), enabled, requires(op), proves(op), string(op.Stage),
		})
	}
	header := []string{"operand", "what it does", "main container", "installed", "requires", "proves", "stage"}
	return table(header, rows), nil
}

func requires(op operand.Operand) string {
	var parts []string
	for _, scope := range []struct {
		of    operand.Scope
		title string
	}{{operand.Cluster, "in the cluster: "}, {operand.Node, "on the node: "}} {
		var all []string
		for _, r := range op.Requires {
			if r.Scope == scope.of {
				all = append(all, code(string(r.On)))
			}
		}
		if len(all) > 0 {
			parts = append(parts, scope.title+strings.Join(all, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

func proves(op operand.Operand) string {
	var all []string
	for _, p := range op.Proofs {
		all = append(all, code(p.Marker.File()))
	}
	return strings.Join(all, ", ")
}

// catalogueGraph is a picture of the operands and what they require.
func catalogueGraph(string) (string, error) {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString("```mermaid\nflowchart LR\n")
	id := func(name operand.Name) string { return strings.ReplaceAll(string(name), "-", "_") }
	for _, op := range catalogue {
		fmt.Fprintf(&out, "  %s[\"%s\"]\n", id(op.Name), op.Name)
	}
	for _, op := range catalogue {
		for _, r := range op.Requires {
			edge := "-.->"
			if r.Scope == operand.Node {
				edge = "-->|" + r.Marker.File() + "|"
			}
			fmt.Fprintf(&out, "  %s %s %s\n", id(r.On), edge, id(op.Name))
		}
	}
	out.WriteString("```\n")
	return out.String(), nil
}
