package migrate_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/takeover/migrate"
)

// owned returns the metadata of an object that an owner controls; none if its UID is empty.
func owned(uid types.UID) metav1.ObjectMeta {
	if uid == "" {
		return metav1.ObjectMeta{}
	}
	controls := true
	return metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: uid, Controller: &controls}}}
}

func TestIsNVIDIAs(t *testing.T) {
	for _, test := range []struct {
		owner  types.UID
		digest string
		want   bool
	}{{"a", "", true}, {"b", "", true}, {"c", "", false}, {"", "", false}, {"a", "1", false}} {
		object := &corev1.ConfigMap{ObjectMeta: owned(test.owner)}
		object.Annotations = map[string]string{"nvidia.com/gpu-operator.digest": test.digest}
		if got := migrate.IsNVIDIAs([]types.UID{"a", "b"}, object); got != test.want {
			t.Errorf("%v: got %t", test, got)
		}
	}
}

func TestIsUnneeded(t *testing.T) {
	for name, change := range map[string]func(*appsv1.DaemonSet){
		"not NVIDIA's":     func(ds *appsv1.DaemonSet) { ds.Annotations = nil },
		"an older status":  func(ds *appsv1.DaemonSet) { ds.Generation = 3 },
		"wanted on a node": func(ds *appsv1.DaemonSet) { ds.Status.DesiredNumberScheduled = 1 },
		"still on a node":  func(ds *appsv1.DaemonSet) { ds.Status.CurrentNumberScheduled = 1 },
		"":                 func(*appsv1.DaemonSet) {},
	} {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
			Generation: 2, Annotations: map[string]string{"nvidia.com/last-applied-hash": "1"},
		}}
		ds.Status.ObservedGeneration = 2
		if change(ds); migrate.IsUnneeded(ds) != (name == "") {
			t.Errorf("%q: got %t", name, name != "")
		}
	}
}

func TestIsDriverPod(t *testing.T) {
	for name, test := range map[string]struct {
		owner               types.UID
		operand             string
		terminating, wanted bool
	}{
		"of the DaemonSet": {owner: "a", wanted: true},
		"of none":          {wanted: true},
		"of another":       {owner: "b"},
		"taken over":       {owner: "a", operand: "driver"},
		"terminating":      {owner: "a", terminating: true},
	} {
		pod := &corev1.Pod{ObjectMeta: owned(test.owner)}
		pod.Labels = map[string]string{"nvidia.com/gpu-operator.operand": test.operand}
		if test.terminating {
			pod.DeletionTimestamp = &metav1.Time{}
		}
		if got := migrate.IsDriverPod([]types.UID{"a"}, pod); got != test.wanted {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestLeftConfigMaps(t *testing.T) {
	want := []string{
		"default-gpu-clients", "default-mig-parted-config", "default-vgpu-devices-config",
		"nvidia-container-toolkit-entrypoint", "nvidia-device-plugin-entrypoint", "nvidia-mig-manager-entrypoint",
	}
	if got := migrate.LeftConfigMaps(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
