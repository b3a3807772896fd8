package operand

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/digest"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/policy/pluginfile"
)

// ReferenceKind is the kind of an object that an operand needs and the operator does not create. Most are named by the
// spec.
type ReferenceKind string

// The kinds in the operator's namespace.
const (
	ConfigMap ReferenceKind = "ConfigMap"
	Secret    ReferenceKind = "Secret"
)

// The cluster-scoped kinds. Only their existence matters.
const (
	PriorityClass                    ReferenceKind = "PriorityClass"
	ValidatingAdmissionPolicyBinding ReferenceKind = "ValidatingAdmissionPolicyBinding"
)

// namespaced reports whether objects of the kind are in a namespace, and have data that pods read.
func (k ReferenceKind) namespaced() bool { return k == ConfigMap || k == Secret }

// Reference names an object.
type Reference struct {
	Kind ReferenceKind
	Name string
}

func (r Reference) String() string { return string(r.Kind) + " " + r.Name }

// AdmissionPolicies stands for all admission policies of the installation, which are applied together: the binding of
// the one that limits pods which write to their node.
var AdmissionPolicies = Reference{ValidatingAdmissionPolicyBinding, labels.AgentPolicyBinding}

// Use is a reference of an operand to an object that the operator does not create.
type Use struct {
	// Field of the spec, such as spec.driver.secretEnv.
	Field string
	Reference
	// Keys that the object must have. LiveKeys are those that a running pod reads again when they change.
	Keys, LiveKeys []string
	// MayRead are further keys that are read if the object has them.
	MayRead []string
	// Noted are keys that have a note of their own.
	Noted []string
	// Optional: the pods start without the object and the keys, and its content makes none of them outdated.
	Optional bool
	// Configures: the keys are configurations of the device plugin. Partitions: they are layouts of the MIG manager.
	Configures, Partitions bool
}

// ConfigMapUse returns the use of a ConfigMap that the field names.
func ConfigMapUse(field, name string, keys ...string) Use {
	return Use{Field: field, Reference: Reference{ConfigMap, name}, Keys: keys}
}

// SecretUse returns the use of a Secret that the field names.
func SecretUse(field, name string, keys ...string) Use {
	return Use{Field: field, Reference: Reference{Secret, name}, Keys: keys}
}

// Content of a referenced object.
type Content struct {
	// Digest of its data.
	Digest string
	// Keys of its data, and a digest of what each has; nil if it is not known, as for Secrets without a licence token.
	Keys       []string
	KeyDigests map[string]string
	// Problems of those data that may be configurations of the device plugin, by key.
	Problems map[string][]pluginfile.Problem
	// Strategies are the MIG strategies in the configurations of the device plugin, by key.
	Strategies map[string]pluginfile.Strategy
	// MPSLines are the lines of sharing.mps in the configurations of the device plugin that share GPUs by MPS, by key.
	MPSLines map[string]int
	// Replicas is how many pods share a GPU by the configurations of the device plugin that share GPUs, by key.
	Replicas map[string]int
	// Layouts are the names of the MIG layouts in it, sorted. LayoutsProblem is why the MIG manager cannot read them,
	// where the object has the key for them; empty if it can.
	Layouts        []string
	LayoutsProblem string
	// FileProblems are those of the other files of users that programs of the stack read, by key, a sentence each.
	FileProblems map[string][]string
	// Assumed: the object has not been read, and may have other keys, too.
	Assumed bool
}

// digestWithout returns a digest of the data without these keys.
func (c Content) digestWithout(keys []string) string {
	if len(keys) == 0 || c.KeyDigests == nil {
		return c.Digest
	}
	hash := digest.New()
	for _, key := range c.Keys {
		if !slices.Contains(keys, key) {
			fmt.Fprintf(hash, "%s %s;", key, c.KeyDigests[key])
		}
	}
	return hash.String()
}

// UsesOf returns the objects that the operand's pods need: those of the operand, and those of every operand with pods.
// Fields with an empty name are left out.
func (o *Operand) UsesOf(in Input) []Use {
	var uses []Use
	if o.References != nil {
		uses = o.References(in)
	}
	if o.Placement != nil {
		if field, class := in.priorityClass(o); !strings.HasPrefix(class, systemPriority) {
			uses = append(uses, Use{Field: in.Field(field + ".priorityClassName"), Reference: Reference{PriorityClass, class}})
		}
		bundle := in.Spec.Global.CABundle
		uses = append(uses, ConfigMapUse(caBundleField, bundle.ConfigMapName, bundle.Key))
	}
	return slices.DeleteFunc(uses, func(u Use) bool { return u.Name == "" })
}

// ReadsPluginConfig reports whether the operand's pods read configurations of the device plugin.
func (o *Operand) ReadsPluginConfig(in Input) bool {
	return o.References != nil && slices.ContainsFunc(o.References(in), func(u Use) bool { return u.Configures })
}

// caBundleField is the field with the CA certificates of every container.
const caBundleField = "spec.global.caBundle.configMapName"

// systemPriority is the prefix of the priority classes that every cluster has.
const systemPriority = "system-"

// Exists reports whether a referenced object exists. Without Contents every object counts as existing.
func (in Input) Exists(reference Reference) bool {
	_, exists := in.Contents[reference]
	return exists || in.Contents == nil
}

// KeysOf returns the keys of a ConfigMap in the operator's namespace, sorted; none if it has not been read.
func (in Input) KeysOf(configMap string) []string {
	return in.Contents[Reference{ConfigMap, configMap}].Keys
}

// CheckReferences refuses an operand whose pods could not start because a referenced object or key is missing. Without
// Contents nothing is missing.
func (in Input) CheckReferences(o *Operand) Decision {
	if in.Contents == nil {
		return Accept()
	}
	for _, use := range o.UsesOf(in) {
		content, exists := in.Contents[use.Reference]
		if use.Optional {
			continue
		}
		if !exists {
			return Refuse(v1.ReasonReferenceMissing,
				fmt.Sprintf("%s: there is no %s%s: create it", use.Field, use.Reference, in.inNamespace(use.Kind)))
		}
		for _, key := range use.Keys {
			if !slices.Contains(content.Keys, key) {
				return Refuse(v1.ReasonReferenceMissing, fmt.Sprintf("%s: %s%s has no key %s: add it",
					use.Field, use.Reference, in.inNamespace(use.Kind), key))
			}
		}
		if use.Partitions && content.LayoutsProblem != "" {
			// It must not replace layouts that work.
			return Refuse(v1.ReasonMIGLayoutsInvalid,
				fmt.Sprintf("%s: %s, key %s, %s", use.Field, use.Reference, labels.MIGLayoutsKey, content.LayoutsProblem))
		}
		if use.Configures {
			if broken := in.checkPluginConfig(use, content); broken.Choice != Install {
				return broken
			}
		}
	}
	return Accept()
}

func (in Input) inNamespace(kind ReferenceKind) string {
	if !kind.namespaced() {
		return ""
	}
	return " in namespace " + in.Namespace
}

// ContentDigest returns a digest of the data of all objects that the operand's pods use; empty if they use none. Pods
// that started with other data are outdated. The CA bundle is left out: it is renewed often, and must not make drivers
// outdated. So are what a running pod reads again, and configurations of the device plugin, of which a node uses one:
// see PluginConfigFor.
func (in Input) ContentDigest(o *Operand) string {
	hash := digest.New()
	used := false
	for _, use := range o.UsesOf(in) {
		content, exists := in.Contents[use.Reference]
		if !use.Kind.namespaced() || use.Field == caBundleField || use.Configures || use.Optional || !exists {
			continue
		}
		used = true
		fmt.Fprintf(hash, "%s %s;", use.Reference, content.digestWithout(use.LiveKeys))
	}
	if !used {
		return ""
	}
	return hash.String()
}
