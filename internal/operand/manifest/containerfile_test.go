package manifest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
)

func TestAContainerFileHasTheContainerOfItsName(t *testing.T) {
	const file, wrong = "driver/containers/a.yaml", "the file must have one container, with the name of the file"
	for name, test := range map[string]struct{ text, want string }{
		"a container":       {"containers: [{name: a}]\nvolumes: [{name: v}]", ""},
		"an init container": {"initContainers: [{name: a}]", ""},
		"an unknown field":  {"containers: [{name: a, img: x}]", `unknown field "img"`},
		"an unknown list":   {"containers: [{name: a}]\nvolume: []", `unknown field "volume"`},
		"a duplicate key":   {"containers: [{name: a, image: x, image: y}]", `key "image" already set`},
		"none":              {"volumes: [{name: v}]", wrong},
		"an empty file":     {"# nothing", wrong},
		"another name":      {"containers: [{name: b}]", wrong},
		"two":               {"containers: [{name: a}]\ninitContainers: [{name: a}]", wrong},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := manifest.DecodeContainer(file, []byte(test.text))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
}

func TestAContainerIsAddedWithItsVolumes(t *testing.T) {
	pod := &corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}, Volumes: []corev1.Volume{{Name: "b"}}}
	values := map[string]any{"DriverToolkit": map[string]any{"Image": "c", "Release": "d"}}
	if err := manifest.AddContainer(pod, "driver/containers/openshift-driver-toolkit-ctr.yaml",
		map[string]any{"Values": values}, 0); err != nil {
		t.Fatal(err)
	}
	if len(pod.InitContainers) != 0 || len(pod.Containers) != 2 || pod.Containers[1].Image != "c" {
		t.Errorf("got init containers %v and containers %v", pod.InitContainers, pod.Containers)
	}
	if len(pod.Volumes) != 2 || pod.Volumes[1].Name != "shared-nvidia-driver-toolkit" {
		t.Errorf("got volumes %v", pod.Volumes)
	}
}

// A container file may repeat a volume of the pod, but not define a different one of the same name.
func TestVolumesOfAContainerFile(t *testing.T) {
	volume := func(name, host string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: host},
		}}
	}
	pod := &corev1.PodSpec{Volumes: []corev1.Volume{volume("a", "/a")}}
	want := []corev1.Volume{volume("a", "/a"), volume("b", "/b")}
	if err := manifest.AddVolumes(pod, want); err != nil || !cmp.Equal(want, pod.Volumes) {
		t.Errorf("got error %v and volumes %v", err, pod.Volumes)
	}
	if err := manifest.AddVolumes(pod, []corev1.Volume{volume("a", "/other")}); err == nil {
		t.Error("accepts a different volume of the same name")
	}
}
