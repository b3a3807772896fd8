package main

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/policy/undecodable"
)

// customKinds are the kinds that the operator checks, too. What an older definition has admitted of them may be
// impossible to decode, or not in time.
var customKinds = sync.OnceValue(func() undecodable.Kinds {
	kinds, err := undecodable.CustomKinds()
	if err != nil {
		panic(err) // Only a type that is registered twice.
	}
	return kinds
})

// decodePolicy decodes a policy. One with fields that cannot be decoded lacks these, and has the annotation
// labels.Undecodable.
func decodePolicy(object *unstructured.Unstructured) (*v1.ClusterPolicy, error) {
	policy := &v1.ClusterPolicy{}
	text, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	sanitized, _, err := customKinds().Sanitize(text)
	if err == nil {
		err = json.Unmarshal(sanitized, policy)
	}
	return policy, err
}

// undecodableObject is the error of an object that lacks fields because they cannot be decoded; nil for others.
func undecodableObject(kind string, object interface {
	GetName() string
	GetAnnotations() map[string]string
}) error {
	cause := object.GetAnnotations()[labels.Undecodable]
	if cause == "" {
		return nil
	}
	return fmt.Errorf("%s %s %s", kind, object.GetName(), cause)
}

// undecodableNotes returns a sentence about each policy and NVIDIADriver of the cluster that cannot be decoded, unless
// the edit replaces it. Of other kinds, the operator compares only the fields that it sets. It fails if it is the
// policy with this name, which the preview is about.
func undecodableNotes(policy string, cluster *preview.Cluster, edit preview.Edit) (notes []string, failed error) {
	for _, object := range cluster.Objects {
		kind := object.GetObjectKind().GroupVersionKind()
		err := undecodableObject(kind.Kind, object)
		switch {
		case err == nil || kind.Group != v1.GroupVersion.Group || isReplaced(object, edit):
		case kind == v1.ClusterPolicyKind && object.GetName() == policy:
			return nil, err
		default:
			notes = append(notes, err.Error())
		}
	}
	return notes, nil
}

// isReplaced reports whether the edit has an object of this kind and name.
func isReplaced(object manifest.Object, edit preview.Edit) bool {
	switch object.(type) {
	case *v1.ClusterPolicy:
		return edit.Policy != nil && edit.Policy.Name == object.GetName()
	case *v1alpha1.NVIDIADriver:
		return slices.ContainsFunc(edit.Drivers, func(driver v1alpha1.NVIDIADriver) bool {
			return driver.Name == object.GetName()
		})
	}
	return false
}

// undecodable returns the errors of the policies that cannot be decoded, by name.
func (c *liveCluster) undecodable() map[string]error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return undecodablePolicies(maps.Values(c.policies))
}

// undecodablePolicies returns the errors of those policies that cannot be decoded, by name.
func undecodablePolicies(all iter.Seq[*v1.ClusterPolicy]) map[string]error {
	found := map[string]error{}
	for policy := range all {
		if err := undecodableObject(v1.ClusterPolicyKind.Kind, policy); err != nil {
			found[policy.Name] = err
		}
	}
	return found
}

// undecodableText has a line for each of the errors, by name.
func undecodableText(found map[string]error) string {
	text := &strings.Builder{}
	for _, line := range undecodableLines(found) {
		fmt.Fprintln(text, "kubectl gpu:", line)
	}
	return text.String()
}

// undecodableLines returns the errors by name.
func undecodableLines(found map[string]error) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		lines = append(lines, found[name].Error())
	}
	return lines
}
