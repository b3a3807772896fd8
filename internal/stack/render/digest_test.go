package render_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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

// The first node with containerd beside CRI-O makes the subscriptions mounts again, but no driver outdated.
func TestSubscriptionsMakeNoDriverOutdated(t *testing.T) {
	rhel, crio := node("rhel", "9.6"), node("rhel", "9.6")
	crio.Name, crio.Runtime = "crio", "cri-o"
	want := digest(t, situation{nodes: []nodeinfo.Facts{rhel}}, "driver")
	for name, nodes := range map[string][]nodeinfo.Facts{"CRI-O": {crio}, "both": {crio, rhel}} {
		if got := digest(t, situation{nodes: nodes}, "driver"); got != want {
			t.Errorf("%s: digest %q, want %q", name, got, want)
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
