package podrules

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// maxAnnotations is the most bytes of a user's annotations: Kubernetes allows 256 KiB in an object, and the operator
// adds its own.
const maxAnnotations = (256 - 8) << 10

// Annotations of pods that Kubernetes interprets, and that package corev1 has no names for.
const (
	tolerationsAnnotation = "scheduler.alpha.kubernetes.io/tolerations"
	mirrorAnnotation      = "kubernetes.io/config.mirror"
)

func checkLabels(labels map[string]string, found report) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		checkKey(key, "["+key+"]", found)
		if problems := validation.IsValidLabelValue(labels[key]); len(problems) > 0 {
			found("["+key+"]", "%q is not the value of a label: %s", labels[key], problems[0])
		}
	}
}

// checkKey checks the key of a label, a taint or a toleration.
func checkKey(key, below string, found report) {
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		found(below, "%q is not a key, such as team or example.com/team: %s", key, problems[0])
	}
}

func checkName(name string, found report) {
	if name == "" {
		return
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		found("", "%q is not the name of an object: %s", name, problems[0])
	}
}

// checkSelector checks a label selector for pods. The schema bounds its characters only.
func checkSelector(selector v1.PodSelector, found report) {
	if _, err := k8slabels.Parse(selector); err != nil {
		found("", "is not a label selector, such as app=training,tier notin (test): %v", err)
	}
}

func checkAnnotations(annotations map[string]string, found report) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		size += len(key) + len(annotations[key])
		// Kubernetes allows capital letters before the slash.
		checkKey(strings.ToLower(key), "["+key+"]", found)
		if problem := annotationProblem(key, annotations[key]); problem != "" {
			found("["+key+"]", "%s", problem)
		}
	}
	if size > maxAnnotations {
		found("", "the annotations have %d bytes, at most %d are possible: shorten them", size, maxAnnotations)
	}
}

// annotationProblem returns why pods cannot have an annotation that Kubernetes interprets; empty for no reason.
func annotationProblem(key, value string) string {
	switch {
	case key == mirrorAnnotation:
		return "is for pods that the kubelet starts itself: remove it"
	case key == corev1.PodDeletionCost && !isDeletionCost(value):
		return "must be a whole number of 32 bits without leading zeros"
	case key == tolerationsAnnotation && value != "":
		return tolerationsProblem(value)
	case key == corev1.SeccompPodAnnotationKey || strings.HasPrefix(key, corev1.SeccompContainerAnnotationKeyPrefix):
		if !isSeccompProfile(value) {
			return "must be runtime/default, unconfined, or localhost/ and a relative path"
		}
	case strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix):
		if !isAppArmorProfile(value) {
			return "must be runtime/default, unconfined, or localhost/ and a profile"
		}
	}
	return ""
}

func isDeletionCost(value string) bool {
	_, err := strconv.ParseInt(value, 10, 32)
	digits := strings.TrimPrefix(value, "-")
	signed := digits != value
	return err == nil && !strings.HasPrefix(value, "+") && (signed || value == "0" || !strings.HasPrefix(value, "0"))
}

// tolerationsProblem returns the first problem of tolerations in JSON.
func tolerationsProblem(text string) string {
	var tolerations []corev1.Toleration
	if err := json.Unmarshal([]byte(text), &tolerations); err != nil {
		return "must be tolerations in JSON: " + err.Error()
	}
	first := ""
	checkTolerations(tolerations, func(below, format string, args ...any) {
		if first == "" {
			first = below + ": " + fmt.Sprintf(format, args...)
		}
	})
	return first
}

func isSeccompProfile(profile string) bool {
	path, isLocal := strings.CutPrefix(profile, corev1.SeccompLocalhostProfileNamePrefix)
	return isLocal && isBelow(path) || slices.Contains([]string{
		corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault,
		corev1.SeccompProfileNameUnconfined,
	}, profile)
}

func isAppArmorProfile(profile string) bool {
	return strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix) || slices.Contains([]string{
		"", corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, corev1.DeprecatedAppArmorBetaProfileNameUnconfined,
	}, profile)
}

// isBelow reports whether a path is relative and does not leave the directory that it starts from.
func isBelow(path string) bool {
	return !strings.HasPrefix(path, "/") && !slices.Contains(strings.Split(path, "/"), "..")
}

func checkVariable(variable v1.EnvVar, found report) {
	if problems := validation.IsRelaxedEnvVarName(variable.Name); len(problems) > 0 {
		found(".name", "%q is not the name of a variable: %s", variable.Name, problems[0])
	}
}
