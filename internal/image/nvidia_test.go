package image_test

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
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
