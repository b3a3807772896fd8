package drift

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// mergeKeys are the lists of a pod template that the API server merges by a key, so that other writers may add
// elements. All other lists are compared element by element.
var mergeKeys = map[string]string{
	"containers":       "name",
	"initContainers":   "name",
	"volumes":          "name",
	"env":              "name",
	"imagePullSecrets": "name",
	"volumeMounts":     "mountPath",
	"ownerReferences":  "uid",
}

// quantities are the fields whose leaves are compared by value: 1000m equals 1.
var quantities = map[string]bool{"limits": true, "requests": true}

// First returns the first field in which the live object differs from the intent, or has additions to a placement
// field, or nil if there is none.
func First(intent *unstructured.Unstructured, live map[string]any) Path {
	if field := diffSubset(intent.Object, live, ""); field != nil {
		return field
	}
	if found := Additions(intent, live); len(found) > 0 {
		return found[0]
	}
	return nil
}

// diffSubset returns the path of the first leaf of the intent, in alphabetical order, that is missing or different in
// the live object, or nil. Fields that only the live object has are ignored: they are defaults or belong to other
// writers. field is the key of both values, empty at the root.
func diffSubset(intent, live any, field string) Path {
	switch want := intent.(type) {
	case map[string]any:
		return diffMap(want, live, field)
	case []any:
		return diffList(want, live, field)
	case nil:
		return nil
	default:
		if equalLeaf(want, live, field) {
			return nil
		}
		return Path{}
	}
}

func diffMap(want map[string]any, live any, field string) Path {
	have, isMap := live.(map[string]any)
	if !isMap && len(want) > 0 {
		return Path{}
	}
	var first string
	var found Path
	for key, value := range want {
		if isEmpty(value) || (found != nil && key > first) {
			continue
		}
		inner := key
		if quantities[field] {
			inner = field
		}
		rest := Path{}
		if got, there := have[key]; there {
			rest = diffSubset(value, got, inner)
		}
		if rest != nil {
			first, found = key, slices.Insert(rest, 0, keySegment(key))
		}
	}
	return found
}

func diffList(want []any, live any, field string) Path {
	have, isList := live.([]any)
	key, merged := mergeKeys[field]
	if (!isList && len(want) > 0) || (!merged && len(want) != len(have)) {
		return Path{}
	}
	for i, element := range want {
		at, rest := segment{text: "[" + strconv.Itoa(i) + "]"}, Path{}
		if !merged {
			rest = diffSubset(element, have[i], "")
		} else if found, there := elementWith(have, key, element); there {
			rest = diffSubset(element, found, "")
		}
		if rest == nil {
			continue
		}
		if merged {
			at = elementSegment(key, element)
		}
		return slices.Insert(rest, 0, at)
	}
	return nil
}

func elementSegment(key string, element any) segment {
	want, _ := element.(map[string]any)
	name := fmt.Sprint(want[key])
	return segment{text: "[" + name + "]", managed: fmt.Sprintf("k:{%q:%q}", key, name)}
}

func elementWith(list []any, key string, like any) (any, bool) {
	want, isMap := like.(map[string]any)
	if !isMap {
		return nil, false
	}
	for _, element := range list {
		if have, isMap := element.(map[string]any); isMap && have[key] == want[key] {
			return element, true
		}
	}
	return nil, false
}

func equalLeaf(want, live any, field string) bool {
	if want == live {
		return true
	}
	wantText, liveText := fmt.Sprint(want), fmt.Sprint(live)
	if wantText == liveText {
		return true
	}
	if !quantities[field] {
		return false
	}
	a, errA := resource.ParseQuantity(wantText)
	b, errB := resource.ParseQuantity(liveText)
	return errA == nil && errB == nil && a.Cmp(b) == 0
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}
