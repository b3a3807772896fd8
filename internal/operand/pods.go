package operand

import (
	"reflect"
	"regexp"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/podrules"
)

// CheckPods refuses an operand if a field of the spec is such that Kubernetes refuses or cannot start its pods.
func (in Input) CheckPods(o *Operand) Decision {
	if o.Placement == nil || o.PerPool && in.UsesNVIDIADrivers() && in.NodePool == nil {
		// Of the driver, each NVIDIADriver object has its own pods.
		return Accept()
	}
	var found []string
	for _, problem := range in.podProblems(o) {
		problem.Field = in.Field(problem.Field)
		found = append(found, problem.String())
	}
	if len(found) == 0 {
		return Accept()
	}
	return Refuse(v1.ReasonInvalidSpec, strings.Join(found, "; "))
}

// podProblems returns the problems of the operand's pods, with paths in the policy.
func (in Input) podProblems(o *Operand) []podrules.Problem {
	placement := in.PlacementOf(o)
	all := *in.Spec.DaemonSets
	// Only nodes have the labels by which the operator selects.
	all.NodeSelector = nil
	if len(placement.Tolerations) > 0 {
		all.Tolerations = nil
	}
	if placement.PriorityClassName != "" {
		all.PriorityClassName = ""
	}
	if placement.PodSecurityContext != nil {
		all.PodSecurityContext = nil
	}
	found := append(podrules.Check(all, "spec.daemonsets"), podrules.Check(in.Spec.NodeStartup, "spec.nodeStartup")...)
	if in.OfNVIDIADriver || placement.Field == "" {
		// What an object says was checked when it was read.
		return found
	}
	found = append(found, podrules.Check(placement.PodSecurityContext, placement.Field+".podSecurityContext")...)
	block := fieldAt(reflect.ValueOf(in.Spec.ClusterPolicySpec), pathBelowSpec(placement.Field))
	return append(found, podrules.Check(block.Interface(), placement.Field)...)
}

// pathBelowSpec returns the JSON names of a path such as spec.health.agent, without the first.
func pathBelowSpec(path string) []string { return strings.Split(path, ".")[1:] }

// part is a part of DaemonSets that fields of the spec decide about.
type part struct {
	// path matches the path of the part in a DaemonSet.
	path *regexp.Regexp
	// own are the fields in the block of the operand, all those of all operands.
	own, all []string
	// replaces: a field of the block that is set replaces those of all operands.
	replaces bool
}

// partOf returns the part that has a path of a DaemonSet; one without fields if no field decides about it.
func partOf(path string) part {
	for _, candidate := range []part{
		{path: regexp.MustCompile(`[.]resources\b`), own: []string{"resources", "containerResources"}},
		{path: regexp.MustCompile(`[.]env\b`), own: []string{"env"}},
		{path: regexp.MustCompile(`[.]args\b`), own: []string{"args"}},
		{path: regexp.MustCompile(`[.]startupProbe\b`), own: []string{"startupProbe"}},
		{path: regexp.MustCompile(`[.]livenessProbe\b`), own: []string{"livenessProbe"}},
		{path: regexp.MustCompile(`[.]readinessProbe\b`), own: []string{"readinessProbe"}},
		{path: regexp.MustCompile(`[.]envFrom\b`), own: []string{"secretEnv"}},
		{path: regexp.MustCompile(`[.](volumes|volumeMounts)\b`), all: []string{"spec.hostPaths", "spec.global.caBundle"}},
		{path: regexp.MustCompile(`[.](hostNetwork|ports)\b`), own: []string{"hostNetwork"}},
		{path: regexp.MustCompile(`[.]imagePullSecrets\b`), own: []string{"imagePullSecrets"},
			all: []string{"spec.global.imagePullSecrets"}},
		{path: regexp.MustCompile(`^spec[.]template[.]spec[.]securityContext\b`), own: []string{"podSecurityContext"},
			all: []string{"spec.daemonsets.podSecurityContext"}, replaces: true},
		likeDaemonSets("tolerations", true), likeDaemonSets("priorityClassName", true),
		likeDaemonSets("nodeSelector", true), likeDaemonSets("labels", false), likeDaemonSets("annotations", false),
		{path: regexp.MustCompile(`^spec[.]updateStrategy\b`), all: []string{"spec.daemonsets.rollingUpdate"}},
	} {
		if candidate.path.MatchString(path) {
			return candidate
		}
	}
	return part{}
}

// likeDaemonSets returns the part that is a field of the same name in spec.daemonsets and in the blocks of operands.
func likeDaemonSets(name string, replaces bool) part {
	return part{
		path: regexp.MustCompile(`[.]` + name + `\b`), own: []string{name}, all: []string{"spec.daemonsets." + name},
		replaces: replaces,
	}
}

// FieldsOf returns the fields of the spec that decide about a path of the operand's DaemonSets, such as
// spec.template.spec.tolerations[0].key: those that are set, else the block of the operand. Empty for an operand
// without pods.
func (in Input) FieldsOf(o *Operand, path string) []string {
	placement := in.PlacementOf(o)
	if placement.Field == "" {
		return nil
	}
	var fields []string
	is := partOf(path)
	for _, name := range is.own {
		field := in.Field(placement.Field + "." + name)
		own := name == "podSecurityContext" && placement.PodSecurityContext != nil
		if own || in.isSet(placement.Field+"."+name) {
			fields = append(fields, field)
		}
	}
	for _, field := range is.all {
		if in.isSet(field) && (len(fields) == 0 || !is.replaces) {
			fields = append(fields, field)
		}
	}
	if len(fields) == 0 {
		return []string{in.Field(placement.Field)}
	}
	return fields
}

// isSet reports whether a field of the policy is set, given its path.
func (in Input) isSet(path string) bool {
	return isSetAt(reflect.ValueOf(in.Spec.ClusterPolicySpec), pathBelowSpec(path))
}
