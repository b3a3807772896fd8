package image_test

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// The on-node program never runs from an image of NVIDIA's operator. The chart has the same cases for the operator.
func TestImageOfNVIDIAsOperatorMeansOurs(t *testing.T) {
	text, err := os.ReadFile("testdata/nvidias.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tests []struct {
		Name       string `json:"name"`
		Repository string `json:"repository"`
		Image      string `json:"image"`
		Version    string `json:"version"`
		Nvidias    bool   `json:"nvidias"`
		Operator   string `json:"operator"`
		Helper     string `json:"helper"`
	}
	if err := yaml.UnmarshalStrict(text, &tests); err != nil {
		t.Fatal(err)
	}
	_, release, _ := strings.Cut(image.Own(), ":")
	for _, test := range tests {
		t.Run(test.Name, func(t *testing.T) {
			spec := v1.ImageSpec{Repository: test.Repository, Image: test.Image, Version: test.Version}
			if want := !test.Nvidias && test.Repository+test.Image+test.Version != ""; image.Named(spec) != want {
				t.Errorf("Named: got %t, want %t", image.Named(spec), want)
			}
			got, err := image.Helper(spec, "own.local/op:v0.1.0")
			if want := strings.Replace(test.Helper, "RELEASE", release, 1); err != nil || got.Image != want {
				t.Errorf("got %s, %v, want %s", got.Image, err, want)
			}
		})
	}
}

// What is no image of this operator is noted, except as NVIDIA's chart writes it.
func TestForeign(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, test := range map[string]struct {
		spec v1.ImageSpec
		want string
	}{
		"nothing":        {},
		"NVIDIA's chart": {spec: v1.ImageSpec{Repository: "nvcr.io/nvidia", Image: "gpu-operator", Version: "v26.7.0"}},
		"in its registry, of an earlier release": {
			spec: v1.ImageSpec{Image: "nvcr.io/nvidia/cloud-native/gpu-operator-validator:v24.9.2"},
		},
		"a mirror of it": {
			spec: v1.ImageSpec{Repository: "mirror.local", Image: "gpu-operator-validator", Version: "v24.9.2"},
		},
		"a combined repository": {
			v1.ImageSpec{Repository: "mirror.local", Image: "nvidia", Version: "gpu-operator-validator-v24.9.2"},
			"names the image of",
		},
		"by digest alone": {
			v1.ImageSpec{Repository: "mirror.local", Image: "nvidia", Version: digest}, "names an image nvidia",
		},
		"another image": {
			v1.ImageSpec{Image: "mirror.local/k8s-device-plugin@" + digest}, "names an image k8s-device-plugin",
		},
		"a copy of the operator's": {
			spec: v1.ImageSpec{Repository: "mirror.local", Image: "gpu-operator", Version: "v1.2.3"},
		},
		"a copy by another name": {spec: v1.ImageSpec{Image: "mirror.local/our-operator@" + digest}},
	} {
		t.Run(name, func(t *testing.T) {
			got := image.Foreign(test.spec)
			if (got == "") != (test.want == "") || !strings.HasPrefix(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
