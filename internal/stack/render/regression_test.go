package render_test

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

func TestEmptyListsMeanTheDefaults(t *testing.T) {
	want := rendered(t, v1.ClusterPolicySpec{})
	for _, text := range []string{
		`{"daemonsets":{"tolerations":[]}}`, `{"daemonsets":{"labels":{},"annotations":{}}}`,
		`{"daemonsets":{"podSecurityContext":{}}}`,
		`{"driver":{"env":[],"args":[],"imagePullSecrets":[]}}`,
		`{"devicePlugin":{"env":[],"args":[],"resources":{"limits":{}}}}`,
	} {
		if got := rendered(t, decodeSpec(t, text)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s renders differently from an empty spec", text)
		}
	}
}

func TestAnyOperatingSystemGivesAValidName(t *testing.T) {
	for _, n := range []nodeinfo.Facts{node("sle_hpc", "15.6"), node("opensuse-leap", "15.6")} {
		ds := situation{nodes: []nodeinfo.Facts{n}}.daemonSet(t, "driver")
		if problems := validation.IsDNS1123Subdomain(ds.Name); len(problems) > 0 {
			t.Errorf("%s: %v", ds.Name, problems)
		}
	}
}

func TestThePathOfTheSocketIsMounted(t *testing.T) {
	s := situation{spec: v1.ClusterPolicySpec{Toolkit: &v1.ToolkitSpec{ContainerSpec: v1.ContainerSpec{Env: []v1.EnvVar{
		{Name: "CONTAINERD_SOCKET", Value: "/run/k3s/containerd/containerd.sock"},
	}}}}}
	ds := s.daemonSet(t, "container-toolkit")
	for _, volume := range ds.Spec.Template.Spec.Volumes {
		if volume.HostPath != nil && strings.HasPrefix(volume.HostPath.Path, "/run/k3s/containerd") {
			return
		}
	}
	t.Error("the toolkit gets the path of a socket that its pod does not mount")
}

func TestAHelperThatTheSpecNamesIsUsed(t *testing.T) {
	live := map[string]rollout.Live{
		"nvidia-operator-validator": {TemplateDigest: digest(t, situation{}, "operator-validator"), HelperImage: helper},
	}
	s := situation{
		live: live,
		spec: v1.ClusterPolicySpec{Validator: &v1.ValidatorSpec{ImageSpec: v1.ImageSpec{Version: "v1.0.1"}}},
	}
	if got := s.daemonSet(t, "operator-validator").Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(
		got,
		":v1.0.1",
	) {
		t.Errorf("still runs %s", got)
	}
}

func TestAnEditedHelperIsNotTakenForTheLiveOne(t *testing.T) {
	ds := situation{}.daemonSet(t, "device-plugin")
	ds.Spec.Template.Spec.InitContainers[0].Image = "example.com/evil:1"
	if got := rollout.LiveDaemonSet(ds).HelperImage; got != helper {
		t.Errorf("reads %s as the live helper", got)
	}
}
