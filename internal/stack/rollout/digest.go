package rollout

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/digest"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

// Template is a pod template, and what its digest depends on.
type Template struct {
	Pod *corev1.PodSpec
	// Helper is the helper image in Pod. It is significant only if HelperNamed: the spec names it.
	Helper      string
	HelperNamed bool
	// Contents is the digest of the user's ConfigMaps and Secrets that the pod reads.
	Contents string
}

// Digest returns the digest of what determines how a pod works: its spec without the insignificant fields, and
// regardless of the order of the environment. Pods that differ in insignificant fields alone are not outdated.
//
// Insignificant are labels and annotations, how the pod is scheduled and what it may use (tolerations, priority,
// resources), how its images are pulled (registry, policy, secrets; the name and the version are significant), its
// probes, and where its last message comes from.
func (t Template) Digest() string {
	significant := t.Pod.DeepCopy()
	significant.Tolerations, significant.ImagePullSecrets = nil, nil
	significant.PriorityClassName, significant.Priority, significant.PreemptionPolicy = "", nil, nil
	manifest.ForEachContainer(significant, func(c *corev1.Container) {
		if !t.HelperNamed {
			ReplaceHelper(c, t.Helper, "helper")
		}
		c.Image, c.ImagePullPolicy = path.Base(c.Image), ""
		c.Resources, c.TerminationMessagePolicy = corev1.ResourceRequirements{}, ""
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = nil, nil, nil
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == ConfigDigestVariable })
		slices.SortStableFunc(c.Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	})
	return digestOf(significant, t.Contents)
}

func digestOf(pod *corev1.PodSpec, contents string) string {
	data, _ := json.Marshal(pod) // It is plain data, which is always encoded.
	return digest.Of(append(data, contents...))
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

// ConfigDigestVariable is the variable by which k8s-driver-manager detects a changed driver. Its value is a digest of
// what the template and Contents have as well, but with the registry of the image.
const ConfigDigestVariable = "DRIVER_CONFIG_DIGEST"

// helperImageVariable is the variable with the image of the pods that gpu-node starts.
const helperImageVariable = "VALIDATOR_IMAGE"
