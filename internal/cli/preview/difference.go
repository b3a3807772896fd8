package preview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpolicy/gpu-operator/internal/kube/drift"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

// templatePath starts the fields of a pod template.
const templatePath = "spec.template."

// difference is in what a rendered object differs from the live one.
type difference struct {
	// field is the first one that differs and is no digest, of the pod template rather than of the metadata; empty if only
	// fields that are no longer set differ.
	field string
	// template: it is in a pod template.
	template bool
	// all are all fields that differ.
	all []drift.Difference
}

// differenceOf finds the difference of an object that would be written.
func differenceOf(rendered, live manifest.Object) (difference, error) {
	intent, err := apply.Intent(rendered)
	if err != nil {
		return difference{}, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return difference{}, fmt.Errorf("converting %s: %w", live.GetName(), err)
	}
	withoutDigests(intent)
	withoutDigests(&unstructured.Unstructured{Object: content})
	found := difference{field: drift.First(intent, content).String(), all: drift.All(intent, content)}
	template, exists, err := unstructured.NestedFieldNoCopy(intent.Object, "spec", "template")
	if exists && err == nil {
		part := map[string]any{"spec": map[string]any{"template": template}}
		first := drift.First(&unstructured.Unstructured{Object: part}, content)
		if found.template = first != nil; found.template {
			found.field = first.String()
		}
	}
	found.field = cmp.Or(found.cause(rendered.GetAnnotations()[labels.HelperImage]), found.field)
	return found, nil
}

// cause returns the first field of the pod template that differs, for a reason of its own: not an image of the
// operator's helpers, in a container or in the variable for the pods that it starts. That alone replaces no pod, and
// follows when another field does. It is empty if there is none.
func (d *difference) cause(helperImage string) string {
	for _, one := range d.all {
		if strings.HasPrefix(one.Path, templatePath) && one.After != helperImage {
			return one.Path
		}
	}
	return ""
}

// withoutDigests removes what changes with any other field, and so explains nothing.
func withoutDigests(intent *unstructured.Unstructured) {
	at := func(path ...string) any {
		found, _, _ := unstructured.NestedFieldNoCopy(intent.Object, path...)
		return found
	}
	for _, annotations := range []any{
		at("metadata", "annotations"), at("spec", "template", "metadata", "annotations"),
	} {
		if all, isMap := annotations.(map[string]any); isMap {
			for _, key := range []string{labels.Digest, labels.TemplateDigest, labels.HelperImage} {
				delete(all, key)
			}
		}
	}
	for _, kind := range []string{"initContainers", "containers"} {
		containers, _ := at("spec", "template", "spec", kind).([]any)
		for _, container := range containers {
			withoutConfigDigest(container)
		}
	}
}

// withoutConfigDigest removes the digest from the environment of a container.
func withoutConfigDigest(container any) {
	fields, isMap := container.(map[string]any)
	env, isList := fields["env"].([]any)
	if !isMap || !isList {
		return
	}
	fields["env"] = slices.DeleteFunc(env, func(variable any) bool {
		entry, isEntry := variable.(map[string]any)
		return isEntry && entry["name"] == rollout.ConfigDigestVariable
	})
}
