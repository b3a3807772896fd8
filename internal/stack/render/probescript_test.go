package render_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

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
