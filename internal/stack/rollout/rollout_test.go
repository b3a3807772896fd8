package rollout_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

// A variant keeps its live DaemonSet. The base name goes to the first variant while there is none, and to the one of
// which pods remain.
func TestIdentities(t *testing.T) {
	o := &operand.Operand{DaemonSet: "toolkit"}
	instances := []operand.Instance{{Layout: "b", Suffix: "-b"}, {Layout: "a", Suffix: "-a"}}
	a, b := instances[1].Variant(), instances[0].Variant()
	for name, test := range map[string]struct {
		live map[string]rollout.Live
		may  bool
		want map[string]rollout.Identity
	}{
		"nothing is live": {may: true, want: map[string]rollout.Identity{
			a: {Name: "toolkit", App: "toolkit"}, b: {Name: "toolkit-b", App: "toolkit-b"},
		}},
		"another variant has the base name": {
			live: map[string]rollout.Live{"toolkit": {Variant: b, App: "toolkit"}},
			want: map[string]rollout.Identity{
				a: {Name: "toolkit-a", App: "toolkit-a"}, b: {Name: "toolkit", App: "toolkit"},
			},
		},
		"the variant of the base name is gone": {
			live: map[string]rollout.Live{"toolkit-b": {Variant: b, App: "toolkit-b"}}, may: true,
			want: map[string]rollout.Identity{
				a: {Name: "toolkit-a", App: "toolkit-a"}, b: {Name: "toolkit-b", App: "toolkit-b"},
			},
		},
		"a pod of the base name remains": {
			live: map[string]rollout.Live{
				"toolkit-a": {Variant: a, App: "toolkit-a"}, "toolkit": {Variant: b, App: "toolkit"},
			},
			want: map[string]rollout.Identity{
				a: {Name: "toolkit-a", App: "toolkit-a"}, b: {Name: "toolkit", App: "toolkit"},
			},
		},
		"one of NVIDIA's has the base name, beside another variant": {
			live: map[string]rollout.Live{"toolkit": {App: "toolkit"}, "toolkit-b": {Variant: b, App: "toolkit-b"}},
			may:  true,
			want: map[string]rollout.Identity{
				a: {Name: "toolkit", App: "toolkit"}, b: {Name: "toolkit-b", App: "toolkit-b"},
			},
		},
		"all variants are live": {
			live: map[string]rollout.Live{"x": {Variant: a, App: "x"}, "y": {Variant: b, App: "y"}},
			want: map[string]rollout.Identity{a: {Name: "x", App: "x"}, b: {Name: "y", App: "y"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, rollout.AssignIdentities(o, instances, test.live)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if may := rollout.MayAssignBaseName(o, instances, test.live); may != test.may {
				t.Errorf("may assign the base name: %v, want %v", may, test.may)
			}
		})
	}
}

// An operand without variants has no identities to assign.
func TestNoIdentities(t *testing.T) {
	o, instances := &operand.Operand{}, []operand.Instance{{Layout: "a"}}
	if got := rollout.AssignIdentities(o, instances, nil); got != nil {
		t.Errorf("got %v", got)
	}
	if rollout.MayAssignBaseName(o, instances, nil) {
		t.Error("it may assign a name")
	}
}

func TestLivePod(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		labels.Pool: "ubuntu24.04-amd64", labels.App: "nvidia-driver-daemonset",
	}}}
	mountScript(&pod.Spec)
	want := rollout.Live{
		Variant: operand.Variant("ubuntu24.04-amd64", "", ""), App: "nvidia-driver-daemonset", NeedsProbeScript: true,
	}
	if got := rollout.LivePod(pod); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
