package undecodable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// KindsOf returns the kinds of some groups that a scheme has types for.
func KindsOf(scheme *runtime.Scheme, groups ...string) Kinds {
	kinds := Kinds{}
	for _, group := range groups {
		for _, version := range scheme.PrioritizedVersionsForGroup(group) {
			for kind, of := range scheme.KnownTypes(version) {
				if _, has := of.FieldByName("ObjectMeta"); has {
					kinds[version.WithKind(kind)] = of
				}
			}
		}
	}
	return kinds
}

// statusField is dropped without a problem where it cannot be decoded: it is written again.
const statusField = "status"

// Sanitize returns an object in JSON without the fields that cannot be decoded, and these. Objects of other kinds, and
// objects without such a field, are returned as they are. The annotation labels.Undecodable of the result names the
// fields; one that the object has already is removed.
func (k Kinds) Sanitize(text []byte) ([]byte, []Problem, error) {
	var head metav1.TypeMeta
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, nil, fmt.Errorf("decoding an object: %w", err)
	}
	of, known := k[head.GroupVersionKind()]
	if !known {
		return text, nil, nil
	}
	object, err := parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("decoding a %s: %w", head.Kind, err)
	}
	problems, changed := check(of, object)
	if changed = mark(object, problems) || changed; !changed {
		return text, nil, nil
	}
	pruned, err := json.Marshal(object)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a %s: %w", head.Kind, err)
	}
	return pruned, problems, nil
}

// Check fails if an object in JSON of one of the kinds cannot be decoded. The error names the object and its fields.
func (k Kinds) Check(text []byte) error {
	_, problems, err := k.Sanitize(text)
	if err != nil || len(problems) == 0 {
		return err
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(text, &object); err != nil {
		return fmt.Errorf("decoding an object: %w", err)
	}
	return fmt.Errorf("%s %s %s", object.Kind, object.Name, describe(problems))
}

// parse decodes an object, with numbers as they are written.
func parse(text []byte) (map[string]any, error) {
	object := map[string]any{}
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	return object, in.Decode(&object)
}

// check removes what cannot be decoded from the fields beside the metadata, and returns the problems. Those of the
// status are not among them.
func check(of reflect.Type, object map[string]any) (problems []Problem, changed bool) {
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		value, has := object[name]
		// The API server itself decodes the metadata.
		if name == "" || name == "metadata" || !has || value == nil {
			continue
		}
		found := checker{}
		remove := found.prune(of.Field(i).Type, value, name)
		if !remove {
			remove = found.confirm(of.Field(i).Type, value, name)
		}
		if remove {
			delete(object, name)
		}
		changed = changed || len(found.problems) > 0
		if name != statusField {
			problems = append(problems, found.problems...)
		}
	}
	return problems, changed
}

// confirm decodes a pruned value as a whole, and reports whether that still fails, for a cause that prune does not
// know.
func (c *checker) confirm(of reflect.Type, value any, path string) (remove bool) {
	text, err := json.Marshal(value)
	if err == nil {
		err = decode(of, text)
	}
	if err != nil {
		c.problems = append(c.problems, Problem{path, "cannot be decoded: " + shorten(err.Error())})
	}
	return err != nil
}

// mark sets or removes the annotation, and reports whether that changes the object.
func mark(object map[string]any, problems []Problem) bool {
	metadata, isMap := object["metadata"].(map[string]any)
	if !isMap {
		metadata = map[string]any{}
	}
	annotations, isMap := metadata["annotations"].(map[string]any)
	if !isMap {
		annotations = map[string]any{}
	}
	_, has := annotations[labels.Undecodable]
	switch {
	case len(problems) > 0:
		annotations[labels.Undecodable] = describe(problems)
		metadata["annotations"], object["metadata"] = annotations, metadata
	case has:
		delete(annotations, labels.Undecodable)
	default:
		return false
	}
	return true
}

// maxDescribed is how many problems a message names.
const maxDescribed = 3

// describe returns the value of the annotation. It names the first problems, first, as some messages are cut, and
// counts the others.
func describe(problems []Problem) string {
	var texts []string
	for _, problem := range problems[:min(len(problems), maxDescribed)] {
		texts = append(texts, problem.String())
	}
	if more := len(problems) - maxDescribed; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d fields more", more))
	}
	return "cannot be decoded: " + strings.Join(texts, "; ") +
		"; until it is corrected, the operator changes nothing for it"
}
