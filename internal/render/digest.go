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
)

// templateDigest covers what decides how a pod works: its spec, without the helper image where that is
// the operator's own choice, and whatever the order of the environment. Labels and annotations are
// left out, so that cosmetic changes make no driver look outdated. contents is the digest of what the pod
// reads from ConfigMaps and Secrets of others.
func templateDigest(pod *corev1.PodSpec, helperImage, contents string) (string, error) {
	significant := pod.DeepCopy()
	forEachContainer(significant, func(c *corev1.Container) {
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

// replaceHelper puts another helper image in place of this one, also where the container is told it for
// the pods that it starts. It tells whether there was one.
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

// helperImageVariable tells gpu-node the image of the pods that it starts.
const helperImageVariable = "VALIDATOR_IMAGE"

// LiveDaemonSet reads what render needs to know of a DaemonSet of the cluster.
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

func forEachContainer(pod *corev1.PodSpec, do func(*corev1.Container)) {
	for i := range pod.InitContainers {
		do(&pod.InitContainers[i])
	}
	for i := range pod.Containers {
		do(&pod.Containers[i])
	}
}
