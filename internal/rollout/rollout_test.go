package rollout_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/rollout"
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

func TestTemplateDigest(t *testing.T) {
	const image = "example.com/gpu-operator:v1"
	pod := func(change func(*corev1.Container)) *corev1.PodSpec {
		c := corev1.Container{Name: "c", Image: image, Env: []corev1.EnvVar{{Name: "A"}, {Name: "B"}}}
		change(&c)
		return &corev1.PodSpec{Containers: []corev1.Container{c}}
	}
	digest := func(pod *corev1.PodSpec, helperImage, contents string) string {
		got, err := rollout.Template{Pod: pod, Helper: helperImage, Contents: contents}.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	plain := pod(func(*corev1.Container) {})
	reordered := pod(func(c *corev1.Container) { slices.Reverse(c.Env) })
	upgraded := pod(func(c *corev1.Container) { c.Image = "example.com/gpu-operator:v2" })
	diagnosed := pod(func(c *corev1.Container) {
		c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	})
	base := digest(plain, image, "")
	for name, test := range map[string]struct {
		digest string
		same   bool
	}{
		"the order of the environment": {digest(reordered, image, ""), true},
		"another helper image":         {digest(upgraded, upgraded.Containers[0].Image, ""), true},
		"the termination messages":     {digest(diagnosed, image, ""), true},
		"another image":                {digest(upgraded, image, ""), false},
		"other contents":               {digest(plain, image, "x"), false},
	} {
		if same := test.digest == base; same != test.same {
			t.Errorf("%s: the digest is the same: %v, want %v", name, same, test.same)
		}
	}
}

func TestLivePod(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		labels.Pool: "ubuntu24.04-amd64", labels.App: "nvidia-driver-daemonset",
	}}}
	want := rollout.Live{Variant: operand.Variant("ubuntu24.04-amd64", "", ""), App: "nvidia-driver-daemonset"}
	if got := rollout.LivePod(pod); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
