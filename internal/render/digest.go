package render

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/digest"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/manifest"
)

// templateDigest covers what determines how a pod works: its spec, regardless of the order of the environment, and
// without helperImage unless that is empty. Labels and annotations are left out, so that cosmetic changes make no
// driver look outdated. contents is the digest of the user's ConfigMaps and Secrets that the pod reads.
func templateDigest(pod *corev1.PodSpec, helperImage, contents string) (string, error) {
	significant := pod.DeepCopy()
	manifest.ForEachContainer(significant, func(c *corev1.Container) {
		if helperImage != "" {
			replaceHelper(c, helperImage, "helper")
		}
		slices.SortStableFunc(c.Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	})
	data, err := json.Marshal(significant)
	if err != nil {
		return "", fmt.Errorf("encoding the pod template: %w", err)
	}
	return digest.Of(append(data, contents...)), nil
}

// replaceHelper replaces the helper image, also in the variable that configures the pods that the container starts. It
// reports whether the container runs that image.
func replaceHelper(c *corev1.Container, helper, by string) (found bool) {
	if c.Image == helper {
		c.Image, found = by, true
	}
	for i := range c.Env {
		if c.Env[i].Name == helperImageVariable && c.Env[i].Value == helper {
			c.Env[i].Value = by
		}
	}
	return found
}

// helperImageVariable is the variable with the image of the pods that gpu-node starts.
const helperImageVariable = "VALIDATOR_IMAGE"

// LiveDaemonSet returns what render needs of a live DaemonSet.
func LiveDaemonSet(ds *appsv1.DaemonSet) Live {
	live := Live{
		TemplateDigest:    ds.Annotations[labels.TemplateDigest],
		HelperImage:       ds.Annotations[labels.HelperImage],
		ExcludesNodePools: excludesNodePools(&ds.Spec.Template.Spec),
		RolloutSuspended:  ds.Annotations[labels.Unrolled] == labels.True,
		Variant:           variantOf(ds.Spec.Template.Labels),
		SelectsByAnchor:   selectsByAnchor(&ds.Spec.Template.Spec),
		NeedsProbeScript:  needsProbeScript(ds),
	}
	if ds.Spec.Selector != nil {
		selected := ds.Spec.Selector.MatchLabels
		live.App = selected[labels.App]
		live.VariantInSelector = slices.ContainsFunc(variantLabels(), func(key string) bool { return selected[key] != "" })
	}
	return live
}
