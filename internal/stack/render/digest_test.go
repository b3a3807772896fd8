package render_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

const digestKey = "nvidia.com/gpu-operator.template-digest"

func digest(t *testing.T, s situation, name operand.Name) string {
	t.Helper()
	ds := s.daemonSet(t, name)
	onSet, onPods := ds.Annotations[digestKey], ds.Spec.Template.Annotations[digestKey]
	if onSet == "" || onSet != onPods {
		t.Fatalf("the digest is %q on the DaemonSet and %q on its pods", onSet, onPods)
	}
	return onSet
}

// The digest decides whether a driver is outdated.
func TestTheTemplateDigestCoversWhatMatters(t *testing.T) {
	plugin := func(spec v1.DevicePluginSpec) situation {
		return situation{spec: v1.ClusterPolicySpec{DevicePlugin: &spec}}
	}
	daemonSets := func(spec v1.DaemonSetsSpec) situation {
		return situation{spec: v1.ClusterPolicySpec{DaemonSets: &spec}}
	}
	tests := map[string]struct {
		situation situation
		changes   bool
	}{
		"a new release of the operator": {situation: situation{helper: "ghcr.io/clusterpolicy/gpu-operator:v2.0.0"}},
		"labels of the user":            {situation: daemonSets(v1.DaemonSetsSpec{Labels: v1.Labels{"a": "b"}})},
		"annotations of the user": {
			situation: daemonSets(v1.DaemonSetsSpec{Annotations: v1.Annotations{"a": "b"}}),
		},
		"the update strategy": {situation: daemonSets(v1.DaemonSetsSpec{UpdateStrategy: "OnDelete"})},
		"maxUnavailable": {
			situation: daemonSets(
				v1.DaemonSetsSpec{RollingUpdate: &v1.RollingUpdateSpec{MaxUnavailable: new(intstr.FromInt32(3))}},
			),
		},
		"the defaults, spelled out": {
			situation: plugin(
				v1.DevicePluginSpec{
					Enabled:   new(true),
					ImageSpec: v1.ImageSpec{Repository: "nvcr.io/nvidia", Image: "k8s-device-plugin", ImagePullPolicy: "IfNotPresent"},
				},
			),
		},
		"an empty security context": {
			situation: daemonSets(v1.DaemonSetsSpec{PodSecurityContext: &corev1.PodSecurityContext{}}),
		},
		"a security context": {
			situation: daemonSets(v1.DaemonSetsSpec{PodSecurityContext: &corev1.PodSecurityContext{FSGroup: new(int64(1))}}),
			changes:   true,
		},
		"the environment": {
			situation: plugin(v1.DevicePluginSpec{ContainerSpec: v1.ContainerSpec{Env: env}}),
			changes:   true,
		},
		"the image": {
			situation: plugin(v1.DevicePluginSpec{ImageSpec: v1.ImageSpec{Version: "v9"}}),
			changes:   true,
		},
		"the arguments": {
			situation: plugin(v1.DevicePluginSpec{ContainerSpec: v1.ContainerSpec{Args: []string{"-v"}}}),
			changes:   true,
		},
		"the network": {
			situation: plugin(v1.DevicePluginSpec{ContainerSpec: v1.ContainerSpec{HostNetwork: new(true)}}),
			changes:   true,
		},
		"tolerations": {
			situation: daemonSets(v1.DaemonSetsSpec{Tolerations: []corev1.Toleration{{Operator: "Exists"}}}),
		},
		"the priority class": {situation: daemonSets(v1.DaemonSetsSpec{PriorityClassName: "system-cluster-critical"})},
		"resources": {situation: plugin(v1.DevicePluginSpec{ContainerSpec: v1.ContainerSpec{
			Resources: &v1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")}},
		}})},
		"a pull secret": {
			situation: plugin(v1.DevicePluginSpec{ImageSpec: v1.ImageSpec{ImagePullSecrets: []string{"registry"}}}),
		},
		"the pull policy": {
			situation: plugin(v1.DevicePluginSpec{ImageSpec: v1.ImageSpec{ImagePullPolicy: "Always"}}),
		},
		"another registry with the same image": {
			situation: plugin(v1.DevicePluginSpec{ImageSpec: v1.ImageSpec{Repository: "mirror.local/nvidia"}}),
		},
		"a mirror of all images": {
			situation: situation{spec: v1.ClusterPolicySpec{Global: &v1.GlobalSpec{Registry: "mirror.local"}}},
		},
		"the name of the image": {
			situation: plugin(v1.DevicePluginSpec{ImageSpec: v1.ImageSpec{Image: "k8s-device-plugin-fork"}}),
			changes:   true,
		},
		"what another operand is configured to": {
			situation: situation{spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{ImageSpec: v1.ImageSpec{Version: "1"}}}},
		},
	}
	mirrored := v1.ClusterPolicySpec{Driver: &v1.DriverSpec{ImageSpec: v1.ImageSpec{Repository: "mirror.local/nvidia"}}}
	if digest(t, situation{spec: mirrored}, "driver") != digest(t, situation{}, "driver") {
		t.Error("the digest of the driver has changed with the registry")
	}
	before := digest(t, situation{}, "device-plugin")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if changed := digest(t, test.situation, "device-plugin") != before; changed != test.changes {
				t.Errorf("the digest changes: %v, want %v", changed, test.changes)
			}
		})
	}
}

// The digest of a release in which more fields were significant is kept, also over a change of insignificant fields.
func TestDigestOfAnEarlierReleaseIsKept(t *testing.T) {
	const earlier = "714faad161e11ae1"
	first := situation{}.daemonSet(t, "driver")
	live := rollout.LiveDaemonSet(first)
	live.TemplateDigest, live.SignificantDigest = earlier, earlier
	priority := v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{PriorityClassName: "system-cluster-critical"}}
	version := v1.ClusterPolicySpec{Driver: &v1.DriverSpec{ImageSpec: v1.ImageSpec{Version: "1"}}}
	for _, step := range []struct {
		name string
		spec v1.ClusterPolicySpec
		kept bool
	}{
		{"the operator is upgraded", v1.ClusterPolicySpec{}, true},
		{"an insignificant change", priority, true},
		{"another driver", version, false},
	} {
		ds := situation{spec: step.spec, live: map[string]rollout.Live{first.Name: live}}.daemonSet(t, "driver")
		if kept := ds.Annotations[digestKey] == earlier; kept != step.kept {
			t.Errorf("%s: the digest is kept: %v, want %v", step.name, kept, step.kept)
		}
		live = rollout.LiveDaemonSet(ds)
	}
}

func TestANewReleaseKeepsTheLiveHelperImage(t *testing.T) {
	const older, newer = "ghcr.io/clusterpolicy/gpu-operator:v0.9.0", "ghcr.io/clusterpolicy/gpu-operator:v2.0.0"
	const set = "nvidia-device-plugin-daemonset"
	current := digest(t, situation{}, "device-plugin")
	refresh := v1.ClusterPolicySpec{Operator: &v1.OperatorSpec{RefreshHelpers: new(true)}}
	tests := map[string]struct {
		live map[string]rollout.Live
		spec v1.ClusterPolicySpec
		want string
	}{
		"nothing runs yet": {want: newer},
		"the same template runs": {
			live: map[string]rollout.Live{set: {TemplateDigest: current, HelperImage: older}},
			want: older,
		},
		"another template runs": {
			live: map[string]rollout.Live{set: {TemplateDigest: "other", HelperImage: older}},
			want: newer,
		},
		"a template without helper runs": {live: map[string]rollout.Live{set: {TemplateDigest: current}}, want: newer},
		"only another DaemonSet runs": {
			live: map[string]rollout.Live{"other": {TemplateDigest: current, HelperImage: older}},
			want: newer,
		},
		"the spec requests the new helper": {
			live: map[string]rollout.Live{set: {TemplateDigest: current, HelperImage: older}},
			spec: refresh,
			want: newer,
		},
		"the same helper runs": {
			live: map[string]rollout.Live{set: {TemplateDigest: current, HelperImage: newer}},
			want: newer,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ds := situation{helper: newer, live: test.live, spec: test.spec}.daemonSet(t, "device-plugin")
			helpers := 0
			for _, c := range containers(&ds.Spec.Template.Spec) {
				if c.Command[0] != "/usr/bin/gpu-node" {
					continue
				}
				helpers++
				if c.Image != test.want {
					t.Errorf("container %s runs %s, want %s", c.Name, c.Image, test.want)
				}
			}
			if helpers == 0 {
				t.Error("no container runs the helper")
			}
		})
	}
}

// A helper image in the spec does not make a driver outdated. Once the spec no longer names it, the next pod uses the
// operator's image again.
func TestAnImageOfTheSpecIsNotKept(t *testing.T) {
	named := v1.ClusterPolicySpec{
		Validator: &v1.ValidatorSpec{ImageSpec: v1.ImageSpec{Repository: "example.com", Image: "helper", Version: "v3"}},
	}
	for _, name := range []operand.Name{"driver", "device-plugin"} {
		before := situation{spec: named}.daemonSet(t, name)
		live := map[string]rollout.Live{before.Name: rollout.LiveDaemonSet(before)}
		after := situation{live: live}.daemonSet(t, name)
		for _, c := range containers(&after.Spec.Template.Spec) {
			if strings.HasPrefix(c.Image, "example.com/") {
				t.Errorf("%s: container %s still runs %s", name, c.Name, c.Image)
			}
		}
	}
}

// A restarted operator reads from live DaemonSets what it has rendered, so it does not roll them.
func TestLiveDaemonSetReadsWhatWasRendered(t *testing.T) {
	for name, sets := range (situation{}).daemonSets(t) {
		for _, ds := range sets {
			live := rollout.LiveDaemonSet(ds)
			if live.TemplateDigest != ds.Annotations[digestKey] {
				t.Errorf("%s: the digest read is %q", ds.Name, live.TemplateDigest)
			}
			if live.HelperImage != helper {
				t.Errorf("%s of %s: the helper read is %q, want %q", ds.Name, name, live.HelperImage, helper)
			}
		}
	}
}

// The first node with containerd beside CRI-O makes the subscriptions mounts again, but no driver outdated. The digests
// are those of the release before, when all of these pods mounted them, with strict types.
func TestSubscriptionsMakeNoDriverOutdated(t *testing.T) {
	rhel, crio := node("rhel", "9.6"), node("rhel", "9.6")
	crio.Name, crio.Runtime = "crio", "cri-o"
	for name, test := range map[string]struct {
		nodes []nodeinfo.Facts
		want  string
	}{
		"containerd": {[]nodeinfo.Facts{rhel}, "6104e1e07f97a4dd"},
		"CRI-O":      {[]nodeinfo.Facts{crio}, "6104e1e07f97a4dd"},
		"both":       {[]nodeinfo.Facts{crio, rhel}, "6104e1e07f97a4dd"},
		"SUSE":       {[]nodeinfo.Facts{node("sles", "15.6")}, "3833d93b2c3b42a4"},
	} {
		if got := digestAfter(t, situation{nodes: test.nodes}, test.want); got != test.want {
			t.Errorf("%s: digest %q, want %q", name, got, test.want)
		}
	}
}

// CRI-O mounts the host's subscription of Red Hat. Where each node has it, no container does so beside it, and nothing
// else of the pod differs.
func TestCRIOMountsSubscriptionsItself(t *testing.T) {
	rhel, crio := node("rhel", "9.6"), node("rhel", "9.6")
	crio.Name, crio.Runtime = "crio", "cri-o"
	all := []string{"subscription-entitlement", "subscription-repo", "subscription-rhsm"}
	isOne := func(name string) bool { return slices.Contains(all, name) }
	var others [][]string
	for name, test := range map[string]struct {
		nodes []nodeinfo.Facts
		want  []string
	}{
		"containerd": {[]nodeinfo.Facts{rhel}, all},
		"CRI-O":      {[]nodeinfo.Facts{crio}, nil},
		"both":       {[]nodeinfo.Facts{crio, rhel}, all},
	} {
		pod := situation{nodes: test.nodes}.daemonSet(t, "driver").Spec.Template.Spec
		var volumes, mounts, rest []string
		for _, volume := range pod.Volumes {
			if isOne(volume.Name) {
				volumes = append(volumes, volume.Name)
			} else {
				rest = append(rest, volume.Name)
			}
		}
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			for _, mount := range container.VolumeMounts {
				if isOne(mount.Name) {
					mounts = append(mounts, mount.Name)
				} else {
					rest = append(rest, container.Name+" "+mount.Name)
				}
			}
		}
		others = append(others, rest)
		slices.Sort(volumes)
		slices.Sort(mounts)
		if mounts = slices.Compact(mounts); !slices.Equal(volumes, test.want) || !slices.Equal(mounts, test.want) {
			t.Errorf("%s: volumes %v, mounts %v, want %v", name, volumes, mounts, test.want)
		}
	}
	if !slices.Equal(others[0], others[1]) || !slices.Equal(others[1], others[2]) || len(others[0]) == 0 {
		t.Errorf("other volumes and mounts differ: %v", others)
	}
}

// digestAfter returns the template digest of the driver in a cluster in which an earlier release had this one.
func digestAfter(t *testing.T, s situation, earlier string) string {
	t.Helper()
	ds := s.daemonSet(t, "driver")
	live := rollout.LiveDaemonSet(ds)
	live.TemplateDigest, live.SignificantDigest = earlier, earlier
	s.live = map[string]rollout.Live{ds.Name: live}
	return digest(t, s, "driver")
}

// Drivers of a release that gave init containers no resources do not become outdated. The digest is of that release.
func TestResourcesOfInitContainersMakeNoDriverOutdated(t *testing.T) {
	s := situation{spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{ContainerSpec: v1.ContainerSpec{
		Resources: &v1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1")}},
	}}}}
	const want = "42ba35e3cbba84d9"
	if got := digestAfter(t, s, want); got != want {
		t.Errorf("digest %q, want %q", got, want)
	}
}

// A validator of a release without gpu-node recheck stays as it is until something else changes, or the spec refreshes
// the helpers: an upgrade of the operator alone replaces no pod.
func TestAnEarlierValidatorIsKept(t *testing.T) {
	const older, newer = "ghcr.io/clusterpolicy/gpu-operator:v0.9.0", "ghcr.io/clusterpolicy/gpu-operator:v2.0.0"
	first := situation{helper: older}.daemonSet(t, "operator-validator")
	if command := validates(first); command != "recheck" {
		t.Fatalf("a new validator runs %s", command)
	}
	first.Spec.Template.Spec = *rollout.WithoutRecheck(&first.Spec.Template.Spec)
	// The digest that such a release has written.
	const before = "b76e7e52978c61f1"
	first.Annotations[digestKey], first.Spec.Template.Annotations[digestKey] = before, before
	variable := v1.ValidatorSpec{ContainerSpec: v1.ContainerSpec{Env: []v1.EnvVar{{Name: "A", Value: "b"}}}}
	live := rollout.LiveDaemonSet(first)
	for _, step := range []struct {
		name string
		spec v1.ClusterPolicySpec
		want string
	}{
		{"the operator is upgraded", v1.ClusterPolicySpec{}, "hold"},
		{"nothing changes", v1.ClusterPolicySpec{}, "hold"},
		{"the validator gets a variable", v1.ClusterPolicySpec{Validator: &variable}, "recheck"},
		{"the variable goes", v1.ClusterPolicySpec{}, "recheck"},
	} {
		ds := situation{helper: newer, spec: step.spec, live: map[string]rollout.Live{first.Name: live}}.
			daemonSet(t, "operator-validator")
		if command := validates(ds); command != step.want {
			t.Errorf("%s: the validator runs %s, want %s", step.name, command, step.want)
		}
		if step.want == "hold" && !apiequality.Semantic.DeepEqual(ds.Spec.Template.Spec, first.Spec.Template.Spec) {
			t.Errorf("%s: the pod template changes", step.name)
		}
		live = rollout.LiveDaemonSet(ds)
	}
	// An earlier release has computed the digest in another way, and a later one has noted its own.
	renewed := rollout.LiveDaemonSet(first)
	renewed.TemplateDigest, renewed.SignificantDigest = "0123456789abcdef", before
	for _, step := range []struct{ significant, want string }{{before, "hold"}, {"fedcba9876543210", "recheck"}} {
		renewed.SignificantDigest = step.significant
		ds := situation{helper: newer, live: map[string]rollout.Live{first.Name: renewed}}.daemonSet(t, "operator-validator")
		if command := validates(ds); command != step.want {
			t.Errorf("with the significant digest %s: the validator runs %s, want %s", step.significant, command, step.want)
		}
	}
	refresh := v1.ClusterPolicySpec{Operator: &v1.OperatorSpec{RefreshHelpers: new(true)}}
	refreshed := situation{helper: newer, spec: refresh, live: map[string]rollout.Live{
		first.Name: rollout.LiveDaemonSet(first),
	}}.daemonSet(t, "operator-validator")
	if command := validates(refreshed); command != "recheck" {
		t.Errorf("refreshed helpers: the validator runs %s", command)
	}
}

// Containers that share GPUs end with the MPS daemon, so it is kept with NVIDIA's config-manager in the same way. Pods
// of the device plugin are replaced.
func TestAnEarlierMPSDaemonIsKept(t *testing.T) {
	with := func(version string, live rollout.Live, refresh bool) *appsv1.DaemonSet {
		s := scenarios["shared-gpus-default"].situation
		plugin := *s.spec.DevicePlugin
		plugin.Version = version
		s.spec.DevicePlugin, s.helper = &plugin, "ghcr.io/clusterpolicy/gpu-operator:v2.0.0"
		s.spec.Operator = &v1.OperatorSpec{RefreshHelpers: &refresh}
		if live.TemplateDigest != "" {
			s.live = map[string]rollout.Live{"nvidia-device-plugin-mps-control-daemon": live}
		}
		return s.daemonSet(t, "mps-control-daemon")
	}
	version := scenarios["shared-gpus-default"].situation.spec.DevicePlugin.Version
	// The digest that such a release has written.
	live := rollout.Live{TemplateDigest: "6e383a95b1852fed", HelperImage: "ghcr.io/clusterpolicy/gpu-operator:v1.0.0"}
	for _, test := range []struct {
		name    string
		ds      *appsv1.DaemonSet
		manager string
	}{
		{"new", with(version, rollout.Live{}, false), "/usr/bin/gpu-node"},
		{"an upgrade of the operator", with(version, live, false), "config-manager"},
		{"another image", with("v8", live, false), "/usr/bin/gpu-node"},
		{"refreshed helpers", with(version, live, true), "/usr/bin/gpu-node"},
	} {
		found := 0
		for _, c := range containers(&test.ds.Spec.Template.Spec) {
			if !strings.HasPrefix(c.Name, "config-manager") {
				continue
			}
			found++
			ofPlugin := c.Image == test.ds.Spec.Template.Spec.Containers[0].Image
			if c.Command[0] != test.manager || ofPlugin != (test.manager == "config-manager") {
				t.Errorf("%s: %s runs %v of %s", test.name, c.Name, c.Command, c.Image)
			}
		}
		kept := test.ds.Annotations[digestKey] == live.TemplateDigest
		if kept != (test.manager == "config-manager") || found != 2 {
			t.Errorf("%s: kept: %t, %d containers", test.name, kept, found)
		}
	}
}

// validates returns what the main container of the validator runs.
func validates(ds *appsv1.DaemonSet) string {
	for _, c := range ds.Spec.Template.Spec.Containers {
		if c.Name == "nvidia-operator-validator" {
			return c.Args[0]
		}
	}
	return ""
}
