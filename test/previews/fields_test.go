package previews

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterpolicy/gpu-operator/internal/kube/drift"
)

// unnamedFields returns the fields that a change has set and a plan did not name. What the plan says of the elements of
// a list without names, or of the keys of labels, is about the list or the labels as a whole. Digests, which are in
// annotations and in one variable, follow from the other fields. Fields that are no longer set are named only as far as
// kubectl gpu diff --help has it: not one that has the API server's default again.
func unnamedFields(planned []drift.Difference, before, after map[string]any) []string {
	earlier, leaves := map[string]any{}, map[string]any{}
	addLeaves(earlier, "", before)
	addLeaves(leaves, "", after)
	var found []string
	for _, path := range slices.Sorted(maps.Keys(leaves)) {
		changed := !cmp.Equal(earlier[path], leaves[path])
		named := slices.ContainsFunc(planned, func(d drift.Difference) bool {
			return strings.HasPrefix(d.Path, path) || strings.HasPrefix(path, d.Path)
		})
		digest := strings.HasSuffix(path, "metadata.annotations") ||
			strings.HasSuffix(path, "env[DRIVER_CONFIG_DIGEST].value")
		if changed && !named && !digest && !isUnset(path, earlier[path], leaves[path]) {
			found = append(found, fmt.Sprintf("%s: %v is now %v", path, earlier[path], leaves[path]))
		}
	}
	return found
}

// defaults are those of the API server, by field.
var defaults = map[string]any{
	"dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": int64(30), "periodSeconds": int64(10),
	"timeoutSeconds": int64(1), "failureThreshold": int64(3), "successThreshold": int64(1), "maxUnavailable": int64(1),
	"internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster", "type": "ClusterIP",
	"restartPolicy": "Always", "allocateLoadBalancerNodePorts": true,
}

// isUnset reports whether a field is no longer set: it has its default again, or fewer keys.
func isUnset(path string, before, after any) bool {
	if value, known := defaults[path[strings.LastIndex(path, ".")+1:]]; known {
		return cmp.Equal(value, after)
	}
	earlier, wasMap := before.(map[string]any)
	now, isMap := after.(map[string]any)
	if !wasMap || !isMap {
		return false
	}
	for key, value := range now {
		if !cmp.Equal(earlier[key], value) {
			return false
		}
	}
	return true
}

// addLeaves adds the fields below a path: of maps, and of lists whose elements are known by their names.
func addLeaves(leaves map[string]any, path string, value any) {
	field := path[strings.LastIndex(path, ".")+1:]
	switch typed := value.(type) {
	case map[string]any:
		switch field {
		case "labels", "annotations", "matchLabels", "nodeSelector", "data", "limits", "requests":
			leaves[path] = value
			return
		}
		for key, inner := range typed {
			addLeaves(leaves, strings.TrimPrefix(path+"."+key, "."), inner)
		}
	case []any:
		names := namesOf(typed)
		if !slices.Contains([]string{"containers", "initContainers", "env", "volumes"}, field) || names == nil {
			leaves[path] = value
			return
		}
		for i, name := range names {
			addLeaves(leaves, path+"["+name+"]", typed[i])
		}
	default:
		leaves[path] = value
	}
}

// namesOf returns the names of the elements of a list; nil if one has none.
func namesOf(list []any) []string {
	var names []string
	for _, element := range list {
		fields, _ := element.(map[string]any)
		name, isText := fields["name"].(string)
		if !isText || slices.Contains(names, name) {
			return nil
		}
		names = append(names, name)
	}
	return names
}
