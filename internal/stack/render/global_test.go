package render_test

import (
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

const mirror = "mirror.local:5000/proxy"

var fullGlobal = v1.GlobalSpec{
	Registry:         mirror,
	ImagePullSecrets: []string{"mirror-login", "a"},
	Proxy: &v1.ProxySpec{
		HTTPProxy:  "http://proxy:3128",
		HTTPSProxy: "http://proxy:3129",
		NoProxy:    "10.0.0.0/8,.local",
	},
	CABundle: &v1.CABundleSpec{ConfigMapName: "authorities", Key: "all.pem"},
}

// withGlobal returns the situation with spec.global.
func withGlobal(s situation, global v1.GlobalSpec) situation {
	s.spec = *s.spec.DeepCopy()
	s.spec.Global = &global
	return s
}

// host matches an image reference of a known registry in any text of a container.
var host = regexp.MustCompile(`(nvcr\.io|ghcr\.io|quay\.io|docker\.io|registry\.local:5000|example\.com)/\S+`)

// In every scenario: no container or init container has another registry in its image, arguments or environment; each
// has the proxies and the CA bundle; each pod has the pull secrets.
func TestGlobalReachesEveryContainer(t *testing.T) {
	seen, ofInit := 0, 0
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			for operand, sets := range withGlobal(scenario.situation, fullGlobal).daemonSets(t) {
				for _, ds := range sets {
					pod := &ds.Spec.Template.Spec
					for _, secret := range fullGlobal.ImagePullSecrets {
						if n := countSecrets(pod, secret); n != 1 {
							t.Errorf("%s has the pull secret %s %d times", operand, secret, n)
						}
					}
					trusts := map[string]int{}
					for _, c := range containers(pod) {
						trusts[c.Name] = countMounts(pod, c, "authorities")
						where := string(operand) + "/" + c.Name
						checkImages(t, where, c)
						checkProxy(t, where, c)
						checkCertificates(t, where, pod, c)
						seen++
					}
					for _, module := range []string{"nvidia-fs-ctr", "nvidia-gdrcopy-ctr"} {
						if n, exists := trusts[module]; exists && n != trusts["nvidia-driver-ctr"] {
							t.Errorf("%s has the certificates at %d places, the driver at %d", module, n, trusts["nvidia-driver-ctr"])
						}
					}
					ofInit += len(pod.InitContainers)
				}
			}
		})
	}
	if seen < 100 || ofInit < 50 {
		t.Errorf("looked at %d containers and %d init containers only: the check is broken", seen, ofInit)
	}
}

// countMounts returns at how many places the container has the ConfigMap.
func countMounts(pod *corev1.PodSpec, c corev1.Container, configMap string) int {
	count := 0
	for _, mount := range c.VolumeMounts {
		if slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.Name == mount.Name && v.ConfigMap != nil && v.ConfigMap.Name == configMap
		}) {
			count++
		}
	}
	return count
}

func countSecrets(pod *corev1.PodSpec, name string) int {
	count := 0
	for _, secret := range pod.ImagePullSecrets {
		if secret.Name == name {
			count++
		}
	}
	return count
}

func checkImages(t *testing.T, where string, c corev1.Container) {
	t.Helper()
	if !strings.HasPrefix(c.Image, mirror+"/") {
		t.Errorf("%s has the image %s", where, c.Image)
	}
	texts := append(append([]string{}, c.Command...), c.Args...)
	for _, variable := range c.Env {
		texts = append(texts, variable.Value)
	}
	for _, text := range texts {
		if found := host.FindString(text); found != "" {
			t.Errorf("%s refers to %s", where, found)
		}
	}
}

func checkProxy(t *testing.T, where string, c corev1.Container) {
	t.Helper()
	for name, want := range map[string]string{
		"HTTP_PROXY": "http://proxy:3128", "HTTPS_PROXY": "http://proxy:3129",
		"NO_PROXY": "10.0.0.0/8,.local,$(KUBERNETES_SERVICE_HOST)",
	} {
		for _, name := range []string{name, strings.ToLower(name)} {
			if got := variables(c)[name]; len(got) != 1 || got[0] != want {
				t.Errorf("%s: %s is %q, want %q once", where, name, got, want)
			}
		}
	}
}

func checkCertificates(t *testing.T, where string, pod *corev1.PodSpec, c corev1.Container) {
	t.Helper()
	file := variables(c)["SSL_CERT_FILE"]
	if len(file) != 1 || file[0] != "/etc/gpu-operator/ca/ca-bundle.crt" {
		t.Fatalf("%s: SSL_CERT_FILE is %q", where, file)
	}
	var mounts []corev1.VolumeMount
	for _, mount := range c.VolumeMounts {
		if mount.MountPath == path.Dir(file[0]) {
			mounts = append(mounts, mount)
		}
	}
	if len(mounts) != 1 || !mounts[0].ReadOnly || mounts[0].SubPath != "" {
		t.Fatalf("%s must mount the certificates once, read-only and without subPath: %+v", where, mounts)
	}
	want := corev1.Volume{Name: mounts[0].Name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{
			Name: "authorities",
		}, Items: []corev1.KeyToPath{{Key: "all.pem", Path: "ca-bundle.crt"}},
	}}}
	if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return reflect.DeepEqual(v, want) }) {
		t.Errorf("%s: no volume of its pod is %+v", where, want)
	}
}

// variables returns the values of a container's variables, by name.
func variables(c corev1.Container) map[string][]string {
	values := map[string][]string{}
	for _, variable := range c.Env {
		values[variable.Name] = append(values[variable.Name], variable.Value)
	}
	return values
}

// The images in the status are those that the pods run.
func TestStatusNamesTheImageOfTheMirror(t *testing.T) {
	s := withGlobal(situation{}, fullGlobal)
	running := map[string]bool{}
	for _, sets := range s.daemonSets(t) {
		for _, ds := range sets {
			for _, c := range ds.Spec.Template.Spec.Containers {
				running[c.Image] = true
			}
		}
	}
	checked := 0
	for _, step := range s.plan(t).Steps {
		for _, instance := range step.Instances {
			if instance.Image == "" || step.Action != plan.Apply {
				continue
			}
			checked++
			if !running[instance.Image] {
				t.Errorf("%s: no container runs %s", step.Operand.Name, instance.Image)
			}
		}
	}
	if checked < 8 {
		t.Errorf("checked %d images only", checked)
	}
}

// The validator creates the test pod, so it gets image and pull secrets by its environment.
func TestTheWorkloadCheckPullsFromTheMirror(t *testing.T) {
	s := withGlobal(
		situation{
			spec: v1.ClusterPolicySpec{Validator: &v1.ValidatorSpec{ImageSpec: v1.ImageSpec{ImagePullSecrets: []string{"own"}}}},
		},
		fullGlobal,
	)
	for _, c := range containers(&s.daemonSet(t, "operator-validator").Spec.Template.Spec) {
		if c.Name != "plugin-validation" {
			continue
		}
		env := variables(c)
		if got := env["VALIDATOR_IMAGE"][0]; got != mirror+"/clusterpolicy/gpu-operator:v1.0.0" {
			t.Errorf("the image is %s", got)
		}
		if got := env["VALIDATOR_IMAGE_PULL_SECRETS"][0]; got != "own,mirror-login,a" {
			t.Errorf("the secrets are %s", got)
		}
		return
	}
	t.Error("there is no container plugin-validation")
}

// The environment of an operand takes precedence over spec.global, in upper or lower case.
func TestTheEnvironmentOfAnOperandWins(t *testing.T) {
	own := []v1.EnvVar{
		{Name: "https_proxy", Value: "mine"},
		{Name: "NO_PROXY", Value: ""},
		{Name: "SSL_CERT_FILE", Value: "/mine"},
	}
	s := withGlobal(
		situation{spec: v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{ContainerSpec: v1.ContainerSpec{Env: own}}}},
		fullGlobal,
	)
	for _, c := range containers(&s.daemonSet(t, "device-plugin").Spec.Template.Spec) {
		if c.Name != "nvidia-device-plugin" {
			checkProxy(t, c.Name, c)
			continue
		}
		env := variables(c)
		for name, want := range map[string]string{
			"https_proxy": "mine", "NO_PROXY": "", "SSL_CERT_FILE": "/mine",
			"HTTP_PROXY": "http://proxy:3128", "http_proxy": "http://proxy:3128",
		} {
			if got := env[name]; len(got) != 1 || got[0] != want {
				t.Errorf("%s is %q, want %q once", name, got, want)
			}
		}
		if len(env["HTTPS_PROXY"])+len(env["no_proxy"]) != 0 {
			t.Error("a variable of the user is also set in the other case")
		}
	}
}

// The operator's own proxy, which the Operator Lifecycle Manager sets, is for the containers of the driver alone, and
// only while the spec names no proxy.
func TestTheDriverGetsTheProxyOfTheOperator(t *testing.T) {
	own := v1.ProxySpec{HTTPProxy: "http://own", HTTPSProxy: "http://own", NoProxy: ".cluster.local"}
	mine := []v1.EnvVar{{Name: "https_proxy", Value: "mine"}}
	sidecar := v1.ClusterPolicySpec{GDRCopy: &v1.GDRCopySpec{Enabled: new(true)}}
	inEnv := v1.ClusterPolicySpec{Driver: &v1.DriverSpec{ContainerSpec: v1.ContainerSpec{Env: mine}}}
	tests := map[string]struct {
		s    situation
		want map[string][]string
	}{
		"no proxy": {want: map[string][]string{}},
		"the operator's": {situation{spec: sidecar, proxy: own}, map[string][]string{
			"HTTP_PROXY": {"http://own"}, "http_proxy": {"http://own"},
			"HTTPS_PROXY": {"http://own"}, "https_proxy": {"http://own"},
			"NO_PROXY": {".cluster.local,$(KUBERNETES_SERVICE_HOST)"},
			"no_proxy": {".cluster.local,$(KUBERNETES_SERVICE_HOST)"},
		}},
		"a variable of the driver": {situation{spec: inEnv, proxy: own}, map[string][]string{
			"HTTP_PROXY": {"http://own"}, "http_proxy": {"http://own"}, "https_proxy": {"mine"},
			"NO_PROXY": {".cluster.local,$(KUBERNETES_SERVICE_HOST)"},
			"no_proxy": {".cluster.local,$(KUBERNETES_SERVICE_HOST)"},
		}},
		"the spec's instead": {
			withGlobal(situation{proxy: own}, v1.GlobalSpec{Proxy: &v1.ProxySpec{HTTPProxy: "http://p"}}),
			map[string][]string{
				"HTTP_PROXY": {"http://p"}, "http_proxy": {"http://p"},
				"NO_PROXY": {"$(KUBERNETES_SERVICE_HOST)"}, "no_proxy": {"$(KUBERNETES_SERVICE_HOST)"},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, c := range test.s.daemonSet(t, "driver").Spec.Template.Spec.Containers {
				if diff := cmp.Diff(test.want, proxies(c)); diff != "" {
					t.Errorf("%s: -want +got:\n%s", c.Name, diff)
				}
			}
		})
	}
	for name, sets := range (situation{spec: sidecar, proxy: own}).daemonSets(t) {
		for _, ds := range sets {
			pod := ds.Spec.Template.Spec
			if name != "driver" {
				pod.InitContainers = append(pod.InitContainers, pod.Containers...)
			}
			for _, c := range pod.InitContainers {
				if found := proxies(c); len(found) > 0 {
					t.Errorf("%s: container %s has %v", name, c.Name, found)
				}
			}
		}
	}
}

// proxies returns the variables of a container that name proxies.
func proxies(c corev1.Container) map[string][]string {
	found := variables(c)
	maps.DeleteFunc(found, func(name string, _ []string) bool {
		return !strings.HasSuffix(strings.ToLower(name), "_proxy")
	})
	return found
}

func TestProxies(t *testing.T) {
	tests := map[string]struct {
		proxy v1.ProxySpec
		want  map[string]string
	}{
		"none": {},
		"of HTTP alone": {
			v1.ProxySpec{HTTPProxy: "http://p"},
			map[string]string{"HTTP_PROXY": "http://p", "NO_PROXY": "$(KUBERNETES_SERVICE_HOST)"},
		},
		"of HTTPS alone": {
			v1.ProxySpec{HTTPSProxy: "http://p"},
			map[string]string{"HTTPS_PROXY": "http://p", "NO_PROXY": "$(KUBERNETES_SERVICE_HOST)"},
		},
		"a comma at the end of the exceptions": {
			v1.ProxySpec{
				HTTPProxy: "http://p",
				NoProxy:   ".svc, ",
			}, map[string]string{"HTTP_PROXY": "http://p", "NO_PROXY": ".svc,$(KUBERNETES_SERVICE_HOST)"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ds := withGlobal(situation{}, v1.GlobalSpec{Proxy: &test.proxy}).daemonSet(t, "dcgm-exporter")
			c := ds.Spec.Template.Spec.Containers[0]
			for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
				want, wanted := test.want[name]
				for _, name := range []string{name, strings.ToLower(name)} {
					got := variables(c)[name]
					if wanted && (len(got) != 1 || got[0] != want) || !wanted && len(got) != 0 {
						t.Errorf("%s is %q, want %q", name, got, want)
					}
				}
			}
		})
	}
}

// A new release of the operator keeps the helper image of live pods. A change of the mirror does not, or pods would be
// pulled from a registry that the spec excludes.
func TestAMirrorThatComesOrGoesReplacesTheHelperImage(t *testing.T) {
	const set, newer = "nvidia-operator-validator", "ghcr.io/clusterpolicy/gpu-operator:v2.0.0"
	plain, mirrored := situation{helper: newer}, withGlobal(situation{helper: newer}, v1.GlobalSpec{Registry: mirror})
	live := func(s situation) map[string]rollout.Live {
		s.helper = helper
		return map[string]rollout.Live{set: rollout.LiveDaemonSet(s.daemonSet(t, "operator-validator"))}
	}
	tests := map[string]struct {
		live map[string]rollout.Live
		next situation
		want string
	}{
		"a new release":                 {live(plain), plain, helper},
		"a new release with the mirror": {live(mirrored), mirrored, mirror + "/clusterpolicy/gpu-operator:v1.0.0"},
		"the mirror is added":           {live(plain), mirrored, mirror + "/clusterpolicy/gpu-operator:v2.0.0"},
		"the mirror is removed":         {live(mirrored), plain, newer},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.next.live = test.live
			for _, c := range containers(&test.next.daemonSet(t, "operator-validator").Spec.Template.Spec) {
				if c.Image != test.want {
					t.Errorf("container %s runs %s, want %s", c.Name, c.Image, test.want)
				}
			}
		})
	}
}

// A mirror does not make a driver look outdated: its image is the same.
func TestAMirrorChangesNoDriver(t *testing.T) {
	driver := v1.ClusterPolicySpec{Driver: &v1.DriverSpec{
		ImageSpec: v1.ImageSpec{Repository: mirror + "/nvidia"},
		Manager:   &v1.DriverManagerSpec{ImageSpec: v1.ImageSpec{Repository: mirror + "/nvidia/cloud-native"}},
	}}
	before := digest(t, situation{spec: driver}, "driver")
	mirrored := withGlobal(situation{spec: driver}, v1.GlobalSpec{Registry: mirror})
	if after := digest(t, mirrored, "driver"); after != before {
		t.Error("the digest has changed")
	}
	if digest(t, withGlobal(situation{}, v1.GlobalSpec{Registry: mirror}), "driver") != digest(t, situation{}, "driver") {
		t.Error("the digest has changed with the mirror")
	}
}
