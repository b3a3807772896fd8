package rollout

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/digest"
	"github.com/clusterpolicy/gpu-operator/internal/manifest"
)

// TemplateDigest returns the digest of what determines how a pod works: its spec, regardless of the order of the
// environment, and without helperImage unless that is empty. Labels and annotations are left out, so that cosmetic
// changes make no driver look outdated, and so is whether the kubelet creates a missing file of the host. contents is the digest of the user's ConfigMaps and Secrets that the pod reads.
func TemplateDigest(pod *corev1.PodSpec, helperImage, contents string) (string, error) {
	significant := pod.DeepCopy()
	manifest.ForEachContainer(significant, func(c *corev1.Container) {
		if helperImage != "" {
			ReplaceHelper(c, helperImage, "helper")
		}
		slices.SortStableFunc(c.Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	})
	for _, volume := range significant.Volumes {
		if source := volume.HostPath; source != nil && source.Type != nil && *source.Type == corev1.HostPathFileOrCreate {
			source.Type = new(corev1.HostPathFile)
		}
	}
	data, err := json.Marshal(significant)
	if err != nil {
		return "", fmt.Errorf("encoding the pod template: %w", err)
	}
	return digest.Of(append(data, contents...)), nil
}

// ReplaceHelper replaces the helper image, also in the variable that configures the pods that the container starts. It
// reports whether the container runs that image.
func ReplaceHelper(c *corev1.Container, helper, by string) (found bool) {
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
