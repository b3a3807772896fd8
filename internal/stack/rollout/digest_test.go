package rollout_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

const helper = "example.com/gpu-operator:v1"

// driverPod is a pod of a driver with a start-up probe of gpu-node, which an init container copies.
func driverPod() *corev1.PodSpec {
	hostPath := func(name string, of corev1.HostPathType) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Type: &of}}}
	}
	times := effective.DriverStartupProbe(60)
	return &corev1.PodSpec{
		InitContainers: []corev1.Container{
			{Name: labels.CopyContainer, Image: helper},
			{Name: "wait", Image: helper, Env: []corev1.EnvVar{{Name: "VALIDATOR_IMAGE", Value: helper}}},
		},
		Containers: []corev1.Container{{
			Name: "driver", Image: "example.com/driver:1",
			Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
			StartupProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
					Command: []string{"/gpu-operator/gpu-node", "probe", "--within=9s"},
				}},
				InitialDelaySeconds: times.InitialDelaySeconds, PeriodSeconds: times.PeriodSeconds,
				TimeoutSeconds: times.TimeoutSeconds, FailureThreshold: times.FailureThreshold,
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "file"}, {Name: labels.HelperVolume, MountPath: labels.HelperDir}},
		}},
		Volumes: []corev1.Volume{
			hostPath("file", corev1.HostPathFileOrCreate), {Name: labels.HelperVolume},
			hostPath("dir", corev1.HostPathDirectory),
		},
	}
}

func newTemplate() rollout.Template {
	return rollout.Template{Pod: driverPod(), Helper: helper, Contents: "c"}
}

// What changes the digest makes pods outdated.
func TestDigest(t *testing.T) {
	driver := func(change func(*corev1.Container)) func(*rollout.Template) {
		return func(t *rollout.Template) { change(&t.Pod.Containers[0]) }
	}
	pod := func(change func(*corev1.PodSpec)) func(*rollout.Template) {
		return func(t *rollout.Template) { change(t.Pod) }
	}
	setHelper := func(t *rollout.Template) {
		t.Helper = "example.com/gpu-operator:v2"
		for i := range t.Pod.InitContainers {
			t.Pod.InitContainers[i].Image = t.Helper
		}
		t.Pod.InitContainers[1].Env[0].Value = t.Helper
	}
	base := newTemplate().Digest()
	// Another digest of the same template would replace all drivers when the operator is upgraded.
	if want := "ce41c5ca23cfbb8d"; base != want {
		t.Errorf("digest %s, want that of the release before, %s", base, want)
	}
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	for name, test := range map[string]struct {
		change func(*rollout.Template)
		same   bool
	}{
		"the order of the environment": {driver(func(c *corev1.Container) { slices.Reverse(c.Env) }), true},
		"the termination messages": {driver(func(c *corev1.Container) {
			c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		}), true},
		"another helper":         {setHelper, true},
		"another helper by name": {func(t *rollout.Template) { t.HelperNamed = true; setHelper(t) }, false},
		"a variable like another": {
			func(t *rollout.Template) { t.Pod.InitContainers[1].Env[0].Value = "example.com/x:1" }, false,
		},
		"a file must exist": {pod(func(p *corev1.PodSpec) {
			p.Volumes[0].HostPath.Type = new(corev1.HostPathFile)
		}), false},
		"a directory is created": {pod(func(p *corev1.PodSpec) {
			p.Volumes[2].HostPath.Type = new(corev1.HostPathDirectoryOrCreate)
		}), false},
		"a path of any type": {pod(func(p *corev1.PodSpec) { p.Volumes[0].HostPath.Type = nil }), false},

		"tolerations": {
			pod(func(p *corev1.PodSpec) { p.Tolerations = []corev1.Toleration{{Key: "a"}} }), true,
		},
		"pull secrets": {
			pod(func(p *corev1.PodSpec) { p.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "a"}} }), true,
		},
		"a priority class":   {pod(func(p *corev1.PodSpec) { p.PriorityClassName = "a" }), true},
		"a priority":         {pod(func(p *corev1.PodSpec) { p.Priority = new(int32(1)) }), true},
		"preemption":         {pod(func(p *corev1.PodSpec) { p.PreemptionPolicy = new(corev1.PreemptNever) }), true},
		"a registry":         {driver(func(c *corev1.Container) { c.Image = "mirror.local/driver:1" }), true},
		"a pull policy":      {driver(func(c *corev1.Container) { c.ImagePullPolicy = corev1.PullAlways }), true},
		"resources":          {driver(func(c *corev1.Container) { c.Resources.Limits = resources }), true},
		"a liveness probe":   {driver(func(c *corev1.Container) { c.LivenessProbe = &corev1.Probe{} }), true},
		"a readiness probe":  {driver(func(c *corev1.Container) { c.ReadinessProbe = &corev1.Probe{} }), true},
		"times of the probe": {driver(func(c *corev1.Container) { c.StartupProbe.PeriodSeconds = 7 }), true},
		"the digest of NVIDIA": {
			driver(func(c *corev1.Container) { c.Env = append(c.Env, corev1.EnvVar{Name: "DRIVER_CONFIG_DIGEST"}) }),
			true,
		},

		"a version":       {driver(func(c *corev1.Container) { c.Image = "example.com/driver:2" }), false},
		"a variable":      {driver(func(c *corev1.Container) { c.Env[0].Value = "2" }), false},
		"host network":    {pod(func(p *corev1.PodSpec) { p.HostNetwork = true }), false},
		"other contents":  {func(t *rollout.Template) { t.Contents = "d" }, false},
		"an init command": {func(t *rollout.Template) { t.Pod.InitContainers[1].Args = []string{"x"} }, false},
	} {
		changed := newTemplate()
		test.change(&changed)
		before := changed.Pod.DeepCopy()
		got := changed.Digest()
		if diff := cmp.Diff(before, changed.Pod); diff != "" {
			t.Errorf("%s: the template is changed: -want +got:\n%s", name, diff)
		}
		if (got == base) != test.same {
			t.Errorf("%s: the digest is the same: %t, want %t", name, !test.same, test.same)
		}
	}
}

func TestReplaceHelper(t *testing.T) {
	for name, test := range map[string]struct {
		image, variable, value       string
		found                        bool
		wantImage, wantVariableValue string
	}{
		"the image":           {helper, "VALIDATOR_IMAGE", "x", true, "y", "x"},
		"the variable":        {"x", "VALIDATOR_IMAGE", helper, false, "x", "y"},
		"both":                {helper, "VALIDATOR_IMAGE", helper, true, "y", "y"},
		"another variable":    {"x", "IMAGE", helper, false, "x", helper},
		"nothing of the kind": {"x", "VALIDATOR_IMAGE", "x", false, "x", "x"},
	} {
		c := &corev1.Container{Image: test.image, Env: []corev1.EnvVar{{Name: test.variable, Value: test.value}}}
		found := rollout.ReplaceHelper(c, helper, "y")
		if found != test.found || c.Image != test.wantImage || c.Env[0].Value != test.wantVariableValue {
			t.Errorf("%s: found %v in %+v", name, found, c)
		}
	}
}
