package render_test

import (
	"strings"
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

const variableDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// overrides are those of variables for all default images.
func overrides(t *testing.T) image.Overrides {
	t.Helper()
	values := map[string]string{}
	for _, d := range catalogue(t).Images() {
		values[d.Variable] = "mirror.example/" + d.Name + "/" + d.Image + "@" + variableDigest
	}
	found, ignored := image.FromVariables(catalogue(t).Images(), func(name string) string { return values[name] })
	if len(ignored) > 0 {
		t.Fatal(ignored)
	}
	return found
}

// In every scenario no container has a default image any more if variables replace them all, except for the versions
// that the spec sets.
func TestVariablesReplaceEveryDefaultImage(t *testing.T) {
	replaced := map[string]bool{}
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			s := scenario.situation
			s.images = overrides(t)
			for operand, sets := range s.daemonSets(t) {
				for _, ds := range sets {
					for _, c := range containers(&ds.Spec.Template.Spec) {
						if strings.HasPrefix(c.Image, "nvcr.io/") && !strings.HasPrefix(c.Image, "nvcr.io/nvidia/from-the-spec/") {
							t.Errorf("%s/%s has the image %s", operand, c.Name, c.Image)
						}
						if rest, found := strings.CutPrefix(c.Image, "mirror.example/"); found {
							image, _, _ := strings.Cut(rest, "/")
							replaced[image] = true
						}
					}
				}
			}
		})
	}
	for _, d := range catalogue(t).Images() {
		if !replaced[d.Name] {
			t.Errorf("no container has the image of %s", d.Variable)
		}
	}
}

// An image of a variable is a default: the spec replaces each of its keys. A precompiled driver has the tag of its
// kernel, not the digest of the variable.
func TestSpecReplacesImagesOfVariables(t *testing.T) {
	precompiled := node("ubuntu", "24.04")
	precompiled.Kernel = "6.8.0-51-generic"
	s := situation{
		images: overrides(t), nodes: []nodeinfo.Facts{precompiled},
		spec: v1.ClusterPolicySpec{
			Driver: &v1.DriverSpec{UsePrecompiled: new(true), ImageSpec: v1.ImageSpec{Version: "595"}},
			GFD:    &v1.GFDSpec{ImageSpec: v1.ImageSpec{Version: "v0.19.0"}},
		},
	}
	want := map[string]string{
		"driver":                "mirror.example/driver/driver:595-6.8.0-51-generic-ubuntu24.04",
		"gpu-feature-discovery": "mirror.example/gpu-feature-discovery/k8s-device-plugin:v0.19.0",
		"device-plugin":         "mirror.example/device-plugin/k8s-device-plugin@" + variableDigest,
	}
	for operand, sets := range s.daemonSets(t) {
		if expected := want[string(operand)]; expected != "" {
			if got := sets[0].Spec.Template.Spec.Containers[0].Image; got != expected {
				t.Errorf("%s has %s, want %s", operand, got, expected)
			}
			delete(want, string(operand))
		}
	}
	if len(want) > 0 {
		t.Errorf("not rendered: %v", want)
	}
}
