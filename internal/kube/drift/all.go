package drift

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Difference is a field whose value would change.
type Difference struct {
	// Path of the field, such as spec.template.spec.containers[main].image.
	Path string `json:"path"`
	// Before and After are the values; absent where there is none.
	Before any `json:"before,omitempty"`
	After  any `json:"after,omitempty"`
}

// owned are maps of which a rendered object has all keys, below the metadata of the object itself: what the live one
// has beyond them was rendered before.
var owned = map[string]bool{
	"annotations": true, "labels": true, "matchLabels": true, "nodeSelector": true, "data": true, "limits": true,
	"requests": true,
}

// withoutDefaults are lists whose elements have no defaults: what the live one has beyond the rendered one was rendered
// before.
var withoutDefaults = map[string]bool{"tolerations": true, "nodeSelectorTerms": true, "matchExpressions": true}

// All returns all fields in which an intent differs from the live object, with those that are no longer set as far as
// they can be told from defaults: elements of lists with names, and keys of owned maps. It is for people; whether an
// object is written is what First decides.
func All(intent *unstructured.Unstructured, live map[string]any) []Difference {
	w := &walk{}
	w.walkValue(intent.Object, live, "", nil)
	return w.found
}

// Between returns all fields in which two values differ, of which none has defaults.
func Between(before, after map[string]any) []Difference {
	w := &walk{both: true}
	w.walkValue(after, before, "", nil)
	return w.found
}

// walk collects differences.
type walk struct {
	// both: each key that the live object has and the intent has not counts.
	both  bool
	found []Difference
}

func (w *walk) add(at Path, before, after any) {
	if isEmpty(before) && isEmpty(after) {
		return
	}
	w.found = append(w.found, Difference{Path: at.String(), Before: before, After: after})
}

// walkValue compares a field of a name.
func (w *walk) walkValue(want, have any, field string, at Path) {
	switch typed := want.(type) {
	case map[string]any:
		other, isMap := have.(map[string]any)
		if !isMap {
			w.add(at, have, want)
			return
		}
		w.walkFields(typed, other, field, at)
	case []any:
		other, isList := have.([]any)
		if !isList {
			w.add(at, have, want)
			return
		}
		w.walkList(typed, other, field, at)
	case nil:
		if w.both {
			w.add(at, have, nil)
		}
	default:
		if !equalLeaf(want, have, field) {
			w.add(at, have, want)
		}
	}
}

func (w *walk) walkFields(want, have map[string]any, field string, at Path) {
	const metadata = 2 // The length of the paths metadata.labels and metadata.annotations.
	complete := w.both || owned[field] && (len(at) != metadata || at[0] != keySegment("metadata"))
	keys := maps.Clone(want)
	if complete {
		maps.Copy(keys, have)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		inner := key
		if quantities[field] {
			inner = field
		}
		path := append(slices.Clone(at), keySegment(key))
		value, wanted := want[key]
		live, there := have[key]
		switch {
		case !wanted:
			w.add(path, live, nil)
		case !there:
			w.add(path, nil, value)
		default:
			w.walkValue(value, live, inner, path)
		}
	}
}

func (w *walk) walkList(want, have []any, field string, at Path) {
	key, merged := mergeKeys[field]
	if merged = merged && named(key, want) && named(key, have); !merged {
		inner := &walk{both: w.both || withoutDefaults[field]}
		inner.walkElements(want, have, at)
		w.found = append(w.found, inner.found...)
		return
	}
	for _, element := range want {
		path := append(slices.Clone(at), elementSegment(key, element))
		if found, there := elementWith(have, key, element); there {
			w.walkValue(element, found, "", path)
		} else {
			w.add(path, nil, element)
		}
	}
	for _, element := range have {
		if _, kept := elementWith(want, key, element); !kept && field != "ownerReferences" {
			w.add(append(slices.Clone(at), elementSegment(key, element)), element, nil)
		}
	}
}

// named reports whether each element of a list is a map with the key.
func named(key string, list []any) bool {
	return !slices.ContainsFunc(list, func(element any) bool {
		fields, isMap := element.(map[string]any)
		return !isMap || fields[key] == nil
	})
}

// walkElements compares a list by the place of its elements; one with another length as a whole.
func (w *walk) walkElements(want, have []any, at Path) {
	if len(want) != len(have) || !slices.ContainsFunc(want, isMap) {
		if len(want) != len(have) || fmt.Sprint(want) != fmt.Sprint(have) {
			w.add(at, have, want)
		}
		return
	}
	for i, element := range want {
		w.walkValue(element, have[i], "", append(slices.Clone(at), segment{text: "[" + strconv.Itoa(i) + "]"}))
	}
}

func isMap(value any) bool {
	_, is := value.(map[string]any)
	return is
}
