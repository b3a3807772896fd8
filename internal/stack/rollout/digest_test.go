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

// scriptPod is driverPod as it was with a script as probe.
func scriptPod() *corev1.PodSpec {
	pod := driverPod()
	pod.InitContainers = pod.InitContainers[1:]
	driver := &pod.Containers[0]
	driver.StartupProbe.Exec.Command = []string{"sh", "/usr/local/bin/startup-probe.sh"}
	driver.StartupProbe.InitialDelaySeconds, driver.StartupProbe.PeriodSeconds = 60, 10
	driver.StartupProbe.FailureThreshold = 120
	driver.VolumeMounts[1] = corev1.VolumeMount{
		Name: "driver-startup-probe-script", MountPath: "/usr/local/bin/startup-probe.sh", SubPath: "startup-probe.sh",
	}
	script := &corev1.ConfigMapVolumeSource{DefaultMode: new(int32(0o755))}
	script.Name = "nvidia-driver-startup-probe"
	pod.Volumes[1] = corev1.Volume{
		Name: "driver-startup-probe-script", VolumeSource: corev1.VolumeSource{ConfigMap: script},
	}
	return pod
}

// digests are those of a template.
type digests struct{ now, significant, whole string }

func digestsOf(t *testing.T, template rollout.Template) digests {
	t.Helper()
	earlier := template.EarlierDigests()
	if len(earlier) != 2 {
		t.Fatal(earlier)
	}
	return digests{template.Digest(), earlier[0], earlier[1]}
}

func newTemplate() rollout.Template {
	return rollout.Template{Pod: driverPod(), Helper: helper, Contents: "c", EarlierContents: "c e"}
}

// same: none of the digests changes; scheduling: only the one of all fields does.
const same, scheduling, all = "same", "only the whole", "all"

// changeFrom returns which digests differ.
func (d digests) changeFrom(base digests) string {
	switch {
	case d == base:
		return same
	case d.now == base.now && d.significant == base.significant:
		return scheduling
	case d.now == base.now || d.significant == base.significant || d.whole == base.whole:
		return "some"
	}
	return all
}

// What changes the digest makes pods outdated. Earlier releases counted more.
func TestDigests(t *testing.T) {
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
	base := digestsOf(t, newTemplate())
	// Another digest of the same template would replace all drivers when the operator is upgraded.
	if want := (digests{"41713b39d19de8e7", "5eb21f4e45d0d30e", "4a5a04c88cc56748"}); base != want {
		t.Errorf("digests: %v, want those of the releases before: %v", base, want)
	}
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	for name, test := range map[string]struct {
		change func(*rollout.Template)
		want   string
	}{
		"the order of the environment": {driver(func(c *corev1.Container) { slices.Reverse(c.Env) }), same},
		"the termination messages": {driver(func(c *corev1.Container) {
			c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		}), same},
		"another helper":         {setHelper, same},
		"another helper by name": {func(t *rollout.Template) { t.HelperNamed = true; setHelper(t) }, all},
		"a variable like another": {
			func(t *rollout.Template) { t.Pod.InitContainers[1].Env[0].Value = "example.com/x:1" }, all,
		},
		"a file must exist": {pod(func(p *corev1.PodSpec) {
			p.Volumes[0].HostPath.Type = new(corev1.HostPathFile)
		}), same},
		"a directory is created": {pod(func(p *corev1.PodSpec) {
			p.Volumes[2].HostPath.Type = new(corev1.HostPathDirectoryOrCreate)
		}), all},
		"a path of any type": {pod(func(p *corev1.PodSpec) { p.Volumes[0].HostPath.Type = nil }), all},

		"tolerations": {
			pod(func(p *corev1.PodSpec) { p.Tolerations = []corev1.Toleration{{Key: "a"}} }), scheduling,
		},
		"pull secrets": {
			pod(func(p *corev1.PodSpec) { p.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "a"}} }), scheduling,
		},
		"a priority class":   {pod(func(p *corev1.PodSpec) { p.PriorityClassName = "a" }), scheduling},
		"a priority":         {pod(func(p *corev1.PodSpec) { p.Priority = new(int32(1)) }), scheduling},
		"preemption":         {pod(func(p *corev1.PodSpec) { p.PreemptionPolicy = new(corev1.PreemptNever) }), scheduling},
		"a registry":         {driver(func(c *corev1.Container) { c.Image = "mirror.local/driver:1" }), scheduling},
		"a pull policy":      {driver(func(c *corev1.Container) { c.ImagePullPolicy = corev1.PullAlways }), scheduling},
		"resources":          {driver(func(c *corev1.Container) { c.Resources.Limits = resources }), scheduling},
		"a liveness probe":   {driver(func(c *corev1.Container) { c.LivenessProbe = &corev1.Probe{} }), scheduling},
		"a readiness probe":  {driver(func(c *corev1.Container) { c.ReadinessProbe = &corev1.Probe{} }), scheduling},
		"times of the probe": {driver(func(c *corev1.Container) { c.StartupProbe.PeriodSeconds = 7 }), scheduling},
		"the digest of NVIDIA": {
			driver(func(c *corev1.Container) { c.Env = append(c.Env, corev1.EnvVar{Name: "DRIVER_CONFIG_DIGEST"}) }),
			scheduling,
		},
		"a mirror": {func(t *rollout.Template) { t.Registry = "mirror.local" }, scheduling},

		"a version":       {driver(func(c *corev1.Container) { c.Image = "example.com/driver:2" }), all},
		"a variable":      {driver(func(c *corev1.Container) { c.Env[0].Value = "2" }), all},
		"host network":    {pod(func(p *corev1.PodSpec) { p.HostNetwork = true }), all},
		"other contents":  {func(t *rollout.Template) { t.Contents, t.EarlierContents = "d", "d e" }, all},
		"an init command": {func(t *rollout.Template) { t.Pod.InitContainers[1].Args = []string{"x"} }, all},
	} {
		changed := newTemplate()
		test.change(&changed)
		before := changed.Pod.DeepCopy()
		got := digestsOf(t, changed)
		if diff := cmp.Diff(before, changed.Pod); diff != "" {
			t.Errorf("%s: the template is changed: -want +got:\n%s", name, diff)
		}
		if found := got.changeFrom(base); found != test.want {
			t.Errorf("%s: %s digests change, want %s", name, found, test.want)
		}
	}
}

// Contents that a running pod reads again only counted earlier.
func TestDigestsOfContentsThatAreReadAgain(t *testing.T) {
	base, reread := digestsOf(t, newTemplate()), newTemplate()
	reread.EarlierContents = "c f"
	if got := digestsOf(t, reread); got.now != base.now || got.significant == base.significant || got.whole == base.whole {
		t.Errorf("contents that are read again: %v, %v", got, base)
	}
}

func TestDigestsOfAMirror(t *testing.T) {
	unmirrored, mirrored := newTemplate(), newTemplate()
	unmirrored.Pod.InitContainers, mirrored.Pod.InitContainers = nil, nil
	mirrored.Registry = "mirror.local"
	if digestsOf(t, unmirrored) != digestsOf(t, mirrored) {
		t.Error("a mirror changes the digest of a pod without the helper")
	}
}

// A pod with a probe of gpu-node, or a token of its own volume, has the digest of the pod as it was before.
func TestDigestsOfPodsAsTheyWere(t *testing.T) {
	withSidecar := func(pod *corev1.PodSpec) *corev1.PodSpec {
		pod.Containers = append(pod.Containers, corev1.Container{
			Name: "sidecar", VolumeMounts: []corev1.VolumeMount{{Name: labels.HelperVolume}},
		})
		return pod
	}
	// A sidecar needs the copy, whose volume follows the script.
	sidecar := withSidecar(scriptPod())
	sidecar.InitContainers = driverPod().InitContainers
	sidecar.Volumes = slices.Insert(sidecar.Volumes, 2, corev1.Volume{Name: labels.HelperVolume})
	ownTimes := func(pod *corev1.PodSpec) *corev1.PodSpec {
		probe := pod.Containers[0].StartupProbe
		probe.InitialDelaySeconds, probe.PeriodSeconds, probe.FailureThreshold = 5, 6, 7
		return pod
	}
	token := func(asFile bool, secret bool) *corev1.PodSpec {
		items := func(keys ...string) corev1.VolumeSource {
			var paths []corev1.KeyToPath
			for _, key := range keys {
				paths = append(paths, corev1.KeyToPath{Key: key, Path: key})
			}
			if secret {
				return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{Items: paths}}
			}
			return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{Items: paths}}
		}
		const key = "client_configuration_token.tok"
		pod := &corev1.PodSpec{
			Volumes: []corev1.Volume{
				{Name: "licensing-config", VolumeSource: items("gridd.conf")}, {Name: "licensing-token", VolumeSource: items(key)},
				{Name: "last"},
			},
			Containers: []corev1.Container{{VolumeMounts: []corev1.VolumeMount{
				{Name: "licensing-config", MountPath: "/drivers/gridd.conf", SubPath: "gridd.conf"},
				{Name: "licensing-token", MountPath: "/drivers/ClientConfigToken"},
			}}},
		}
		if asFile {
			pod.Volumes = []corev1.Volume{{Name: "licensing-config", VolumeSource: items("gridd.conf", key)}, {Name: "last"}}
			pod.Containers[0].VolumeMounts[1] = corev1.VolumeMount{
				Name: "licensing-config", MountPath: "/drivers/ClientConfigToken/" + key, SubPath: key,
			}
		}
		return pod
	}
	// beside has the token in a volume of the other kind, which cannot be added to the licence's.
	beside := func(secret bool, pod *corev1.PodSpec) *corev1.PodSpec {
		pod.Volumes[0] = token(false, secret).Volumes[0]
		if pod.Volumes[1].Name == "licensing-token" {
			pod.Volumes[1] = token(false, !secret).Volumes[1]
		}
		return pod
	}
	for name, test := range map[string]struct {
		now, earlier *corev1.PodSpec
		// significant: the fields that count now are the same.
		significant bool
	}{
		"a script":                 {driverPod(), scriptPod(), false},
		"a script, with a sidecar": {withSidecar(driverPod()), sidecar, false},
		"a script with times":      {ownTimes(driverPod()), ownTimes(scriptPod()), false},
		"a token in a Secret":      {token(false, true), token(true, true), true},
		"a token in a ConfigMap":   {token(false, false), token(true, false), true},
		"no token in a volume":     {token(true, true), token(true, true), true},
		"a token beside a Secret":  {beside(true, token(false, true)), beside(true, token(true, true)), true},
		"one beside a ConfigMap":   {beside(false, token(false, false)), beside(false, token(true, false)), true},
	} {
		now := digestsOf(t, rollout.Template{Pod: test.now, Helper: helper})
		earlier := digestsOf(t, rollout.Template{Pod: test.earlier, Helper: helper})
		if now.whole != earlier.whole || test.significant != (now.now == earlier.now) {
			t.Errorf("%s: %v, earlier %v", name, now, earlier)
		}
	}
	// Probes of others are no command of gpu-node, and stay.
	noHandler := driverPod()
	noHandler.Containers[0].StartupProbe.Exec = nil
	noVolume := driverPod()
	noVolume.Volumes = noVolume.Volumes[:1]
	for name, test := range map[string]struct {
		pod  *corev1.PodSpec
		same bool
	}{
		"the probe alone": {withCommand("/gpu-operator/gpu-node", "probe"), true},
		"another command": {withCommand("/gpu-operator/gpu-node", "hold"), false},
		"another program": {withCommand("/bin/gpu-node", "probe"), false},
		"no command":      {withCommand("/gpu-operator/gpu-node"), false},
		"no handler":      {noHandler, false},
		"no volume":       {noVolume, false},
	} {
		got := digestsOf(t, rollout.Template{Pod: test.pod}).whole
		if same := got == digestsOf(t, rollout.Template{Pod: scriptPod()}).whole; same != test.same {
			t.Errorf("%s: as with the script: %v, want %v", name, same, test.same)
		}
	}
}

// withCommand is driverPod with another start-up probe.
func withCommand(command ...string) *corev1.PodSpec {
	pod := driverPod()
	pod.Containers[0].StartupProbe.Exec.Command = command
	return pod
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
