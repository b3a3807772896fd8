package apply

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// mergeKeys are the lists of a pod template that the API server merges by a key, so that others may
// add elements to them. Every other list is compared element by element.
var mergeKeys = map[string]string{
	"containers":       "name",
	"initContainers":   "name",
	"volumes":          "name",
	"env":              "name",
	"imagePullSecrets": "name",
	"volumeMounts":     "mountPath",
	"ownerReferences":  "uid",
}

// quantities are the fields whose leaves are equal by value: 1000m is 1.
var quantities = map[string]bool{"limits": true, "requests": true}

// covers tells whether every leaf of the intent is in the live object. What only the live object has
// belongs to others, or was defaulted.
func covers(intent, live any, field string) bool {
	switch want := intent.(type) {
	case map[string]any:
		return coversMap(want, live, field)
	case []any:
		return coversList(want, live, field)
	case nil:
		return true
	default:
		return sameLeaf(want, live, field)
	}
}

func coversMap(want map[string]any, live any, field string) bool {
	have, isMap := live.(map[string]any)
	if !isMap {
		return len(want) == 0
	}
	for key, value := range want {
		inner := key
		if quantities[field] {
			inner = field
		}
		if isEmpty(value) {
			continue
		}
		got, there := have[key]
		if !there || !covers(value, got, inner) {
			return false
		}
	}
	return true
}

func coversList(want []any, live any, field string) bool {
	have, isList := live.([]any)
	if !isList {
		return len(want) == 0
	}
	key, merged := mergeKeys[field]
	if !merged {
		if len(want) != len(have) {
			return false
		}
		for i := range want {
			if !covers(want[i], have[i], "") {
				return false
			}
		}
		return true
	}
	for _, element := range want {
		found, there := elementWith(have, key, element)
		if !there || !covers(element, found, "") {
			return false
		}
	}
	return true
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

func sameLeaf(want, live any, field string) bool {
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
