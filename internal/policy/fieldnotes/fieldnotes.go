package fieldnotes

import (
	"fmt"
	"slices"
	"sync"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// given is the spec that the notes are about.
type given struct {
	v1.ClusterPolicySpec
	// effective returns it with the defaults, which are computed once.
	effective func() effective.Spec
}

func newGiven(spec v1.ClusterPolicySpec) given {
	return given{spec, sync.OnceValue(func() effective.Spec { return effective.Of(spec) })}
}

// field is a field that is reported while it is set.
type field struct {
	name  string
	isSet func(given) bool
	// advice is the effect, or what to use instead.
	advice string
}

// unsupported are the fields that have no effect yet and leave the policy ready. Other unsupported fields make their
// operand, or their nodes, Invalid.
var unsupported = []field{
	{"spec.sandboxWorkloads.enabled", func(s given) bool {
		return deref(deref(s.SandboxWorkloads).Enabled)
	}, "nodes for virtual machines get no operands; nodes for containers do"},
}

// deprecated are the fields that are only accepted for old policies. As in NVIDIA's operator, all but
// licensingConfig.configMapName have no effect.
var deprecated = []field{
	{"spec.operator.defaultRuntime", func(s given) bool { return deref(s.Operator).DefaultRuntime != "" },
		"remove it, each node's runtime is detected"},
	{"spec.operator.initContainer", func(s given) bool {
		return image.IsSet(deref(deref(s.Operator).InitContainer))
	}, "remove it, the image is not used"},
	{"spec.operator.labels", func(s given) bool { return len(deref(s.Operator).Labels) > 0 },
		"label the operator's Deployment, or use spec.daemonsets.labels"},
	{"spec.operator.annotations", func(s given) bool { return len(deref(s.Operator).Annotations) > 0 },
		"annotate the operator's Deployment, or use spec.daemonsets.annotations"},
	{"spec.driver.useOpenKernelModules", func(s given) bool {
		return deref(s.Driver).UseOpenKernelModules != nil
	}, "use spec.driver.kernelModuleType"},
	{"spec.driver.licensingConfig.configMapName", func(s given) bool {
		return deref(deref(s.Driver).LicensingConfig).ConfigMapName != ""
	}, "use secretName"},
	{"spec.dcgm.hostPort", func(s given) bool { return deref(s.DCGM).HostPort != 0 },
		"use spec.dcgm.hostNetwork"},
	{"spec.cdi.default", func(s given) bool { return deref(s.CDI).Default != nil },
		"remove it, only spec.cdi.enabled has an effect"},
	{"spec.psp", func(s given) bool { return deref(deref(s.PSP).Enabled) },
		"use spec.psa"},
	{"spec.kataManager", func(s given) bool { return deref(deref(s.KataManager).Enabled) },
		"use kata-deploy of Kata Containers"},
}

// deref returns what a field of the spec points to, or the zero value if it is not set.
func deref[T any](block *T) T {
	if block == nil {
		return *new(T)
	}
	return *block
}

// Fields returns the names of the fields that a note can be about, such as spec.dcgm.hostPort, except for those that
// many blocks have.
func Fields() []string {
	var names []string
	for _, field := range slices.Concat(unsupported, doubtful, beside, deprecated) {
		names = append(names, field.name)
	}
	return names
}

// Of returns a sentence for each field of the spec that has no effect yet, is doubtful or deprecated.
func Of(spec v1.ClusterPolicySpec) []string {
	return slices.Concat(Unsupported(spec), Doubtful(spec), Deprecated(spec))
}

// Unsupported returns a sentence for each field that is set and has no effect yet, in a fixed order.
func Unsupported(spec v1.ClusterPolicySpec) []string { return notes(unsupported, newGiven(spec)) }

// Deprecated returns a sentence for each field that is set and deprecated, in a fixed order.
func Deprecated(spec v1.ClusterPolicySpec) []string { return notes(deprecated, newGiven(spec)) }

func notes(fields []field, spec given) []string {
	var found []string
	for _, field := range fields {
		if field.isSet(spec) {
			found = append(found, fmt.Sprintf("%s: %s", field.name, field.advice))
		}
	}
	return found
}
