package render_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

// Digests of templates in which the start-up probe was a script from a ConfigMap: an upgrade from such a release must
// not make a driver outdated.
func TestNoDriverIsOutdatedByItsProbe(t *testing.T) {
	driver := func(spec v1.DriverSpec) situation { return situation{spec: v1.ClusterPolicySpec{Driver: &spec}} }
	const release = "417.94.202501071621-0"
	for name, test := range map[string]struct {
		situation situation
		digest    string
	}{
		"by default": {situation{}, "714faad161e11ae1"},
		"with sidecars that gpu-node starts": {
			situation{spec: v1.ClusterPolicySpec{
				GDS:     &v1.GDSSpec{Enabled: new(true)},
				GDRCopy: &v1.GDRCopySpec{Enabled: new(true)},
			}},
			"fd22ba4212d8a358",
		},
		"with a sidecar of its own image": {
			driver(v1.DriverSpec{RDMA: &v1.RDMASpec{Enabled: new(true)}}),
			"9c18fd0bb272709d",
		},
		"on Red Hat CoreOS": {
			situation{
				spec:    v1.ClusterPolicySpec{GDS: &v1.GDSSpec{Enabled: new(true)}},
				nodes:   []nodeinfo.Facts{coreOS(release)},
				toolkit: map[string]string{release: "example.com/toolkit:1"},
			},
			"f61e00c4fa4c40c7",
		},
		"with files and another probe": {
			driver(v1.DriverSpec{
				VirtualTopology: &v1.VirtualTopologyConfigSpec{Config: "topology"},
				LicensingConfig: &v1.DriverLicensingConfigSpec{SecretName: "licence", NLSEnabled: new(false)},
				StartupProbe:    &v1.ProbeSpec{PeriodSeconds: 3},
			}),
			"c00ebf1d1398919d",
		},
		"from a mirror, with certificates": {
			situation{spec: v1.ClusterPolicySpec{Global: &v1.GlobalSpec{
				Registry: "mirror.local",
				CABundle: &v1.CABundleSpec{ConfigMapName: "ca"},
			}}},
			"18e0a297c7735941",
		},
		"with sidecars from a mirror": {
			situation{spec: v1.ClusterPolicySpec{
				GDS:    &v1.GDSSpec{Enabled: new(true)},
				Global: &v1.GlobalSpec{Registry: "mirror.local"},
			}},
			"57c8b36e1faddaa2",
		},
		"with a helper image of the user's": {
			situation{spec: v1.ClusterPolicySpec{Validator: &v1.ValidatorSpec{ImageSpec: v1.ImageSpec{
				Repository: "example.com", Image: "helper", Version: "v3", ImagePullPolicy: corev1.PullAlways,
			}}}},
			"714faad161e11ae1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			// The digests are those of releases with the script.
			ds := test.situation.daemonSet(t, "driver")
			live := rollout.LiveDaemonSet(ds)
			live.TemplateDigest, live.SignificantDigest = test.digest, test.digest
			test.situation.live = map[string]rollout.Live{ds.Name: live}
			if got := digest(t, test.situation, "driver"); got != test.digest {
				t.Errorf("digest %q, want %q", got, test.digest)
			}
		})
	}
}

// An older gpu-node has no probe command, so its image is not kept for drivers that had a script, even if they have
// sidecars.
func TestADriverWithAScriptGetsANewHelper(t *testing.T) {
	const older, newer = "ghcr.io/clusterpolicy/gpu-operator:v0.9.0", "ghcr.io/clusterpolicy/gpu-operator:v2.0.0"
	const set = "nvidia-driver-daemonset-ubuntu24.04-amd64"
	s := situation{helper: newer, spec: v1.ClusterPolicySpec{GDS: &v1.GDSSpec{Enabled: new(true)}}}
	current := digest(t, s, "driver")
	for want, live := range map[string]rollout.Live{
		newer: {TemplateDigest: current, HelperImage: older, NeedsProbeScript: true, Variant: "ubuntu24.04-amd64"},
		older: {TemplateDigest: current, HelperImage: older, Variant: "ubuntu24.04-amd64"},
	} {
		s.live = map[string]rollout.Live{set: live}
		ds := s.daemonSet(t, "driver")
		if got := ds.Spec.Template.Spec.InitContainers[0].Image; got != want {
			t.Errorf("%+v: gpu-node comes from %s, want %s", live, got, want)
		}
	}
}

// The script stays until all pods are of templates without it.
func TestTheProbeScriptStaysForTheLastPod(t *testing.T) {
	const mounted = "nvidia.com/gpu-operator.probe-script-mounted"
	script := []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "nvidia-driver-startup-probe"}}}}}
	left := map[string]string{mounted: "true"}
	status := func(observed int64, desired, updated, misscheduled int32) appsv1.DaemonSetStatus {
		return appsv1.DaemonSetStatus{
			ObservedGeneration: observed, DesiredNumberScheduled: desired,
			UpdatedNumberScheduled: updated, NumberMisscheduled: misscheduled,
		}
	}
	for name, test := range map[string]struct {
		annotations map[string]string
		volumes     []corev1.Volume
		status      appsv1.DaemonSetStatus
		want        bool
	}{
		"the template has it":                   {volumes: script, want: true},
		"the template has it, all pods are new": {volumes: script, status: status(3, 2, 2, 0), want: true},
		"a template that never had it":          {status: status(3, 2, 0, 0)},
		"the status is outdated":                {annotations: left, status: status(2, 2, 2, 0), want: true},
		"no pod is new":                         {annotations: left, status: status(3, 2, 0, 0), want: true},
		"one pod is new":                        {annotations: left, status: status(3, 2, 1, 0), want: true},
		"one old pod is on another node":        {annotations: left, status: status(3, 2, 2, 1), want: true},
		"all pods are new":                      {annotations: left, status: status(3, 2, 2, 0)},
		"there are no pods":                     {annotations: left, status: status(3, 0, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			ds := &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Generation: 3, Annotations: test.annotations},
				Status:     test.status,
			}
			ds.Spec.Template.Spec.Volumes = test.volumes
			live := rollout.LiveDaemonSet(ds)
			if live.NeedsProbeScript != test.want {
				t.Fatalf("the script is needed: %v", live.NeedsProbeScript)
			}
			live.Variant = "ubuntu24.04-amd64"
			// Pods of one of two pools mount it.
			const first, second = "nvidia-driver-daemonset-ubuntu24.04-amd64", "nvidia-driver-daemonset-rhel9.6-amd64"
			s := situation{
				nodes: []nodeinfo.Facts{node("ubuntu", "24.04"), node("rhel", "9.6")},
				live:  map[string]rollout.Live{first: live, second: {Variant: "rhel9-amd64"}},
			}
			scripts := 0
			for _, object := range s.objects(t)["driver"] {
				switch o := object.(type) {
				case *corev1.ConfigMap:
					scripts++
					if o.Name != "nvidia-driver-startup-probe" {
						t.Errorf("ConfigMap %s", o.Name)
					}
				case *appsv1.DaemonSet:
					if got, want := o.Annotations[mounted] == "true", test.want && o.Name == first; got != want {
						t.Errorf("%s has the annotation that pods mount it: %v", o.Name, got)
					}
				}
			}
			if (scripts == 1) != test.want || scripts > 1 {
				t.Errorf("%d scripts are applied", scripts)
			}
		})
	}
}
