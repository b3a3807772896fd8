package previews

import (
	"regexp"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// excuses are the differences that were named before.
type excuses struct {
	// objects that nodes with labels of a running operator change, by kind and name, with what becomes of each: differ,
	// be applied, or not be applied.
	objects map[string]string
	// unread are the operands that use an object which was not read: their objects lack what follows from its content, and
	// would not be applied without it. allOperands stands for each one that has pods.
	unread map[string]bool
}

// allOperands is how previews name all operands that have pods.
const allOperands = "all operands with pods"

// The sentences of render that name differences. The objects that are not printed at all have sentences, too, but no
// excuse: they are not applied.
var (
	labelled = regexp.MustCompile(`^(\S+ \S+) would (.*) with the labels of a running operator$`)
	notRead  = regexp.MustCompile(`^(?:ConfigMap|Secret|PriorityClass) \S+ was not read: .* the objects of (.*) ` +
		`(?:lack|would)`)
)

// excusesIn returns the differences that lines of sentences name.
func excusesIn(named string) excuses {
	found := excuses{objects: map[string]string{}, unread: map[string]bool{}}
	for line := range strings.Lines(named) {
		line = strings.TrimSuffix(line, "\n")
		if match := labelled.FindStringSubmatch(line); match != nil {
			found.objects[match[1]] = match[2]
		}
		if match := notRead.FindStringSubmatch(line); match != nil {
			for operand := range strings.SplitSeq(match[1], ", ") {
				found.unread[operand] = true
			}
		}
	}
	return found
}

// none reports whether every difference counts.
func (e excuses) none() bool { return len(e.objects)+len(e.unread) == 0 }

// cover reports whether the difference was named.
func (e excuses) cover(found difference) bool {
	becomes := map[string]bool{
		"differ":         found.printed != nil && found.applied != nil,
		"be applied":     found.printed == nil && found.applied != nil,
		"not be applied": found.printed != nil && found.applied == nil,
	}
	if becomes[e.objects[found.key]] {
		return true
	}
	return (e.unread[found.operand] || e.unread[allOperands]) && found.printed != nil &&
		(found.applied == nil || cmp.Equal(withoutContents(found.printed), withoutContents(found.applied)))
}

// withoutContents returns an object without what follows from the contents of ConfigMaps and Secrets: mounts of their
// keys, digests, and the default among configurations of the device plugin.
func withoutContents(content map[string]any) map[string]any {
	content = runtime.DeepCopyJSON(content)
	for _, path := range [][]string{{"metadata"}, {"spec", "template", "metadata"}} {
		unstructured.RemoveNestedField(content, append(path, "annotations")...)
	}
	pod, _, _ := unstructured.NestedMap(content, "spec", "template", "spec")
	delete(pod, "volumes")
	for _, kind := range []string{"initContainers", "containers"} {
		containers, _ := pod[kind].([]any)
		for _, container := range containers {
			fields, _ := container.(map[string]any)
			delete(fields, "volumeMounts")
			fields["env"] = withoutContentVariables(fields["env"])
		}
	}
	if pod != nil {
		_ = unstructured.SetNestedMap(content, pod, "spec", "template", "spec")
	}
	return content
}

// withoutContentVariables returns the variables that do not follow from contents.
func withoutContentVariables(env any) any {
	all, _ := env.([]any)
	kept := []any{}
	for _, variable := range all {
		fields, _ := variable.(map[string]any)
		if name := fields["name"]; name != "DRIVER_CONFIG_DIGEST" && name != "DEFAULT_CONFIG" {
			kept = append(kept, variable)
		}
	}
	return kept
}
