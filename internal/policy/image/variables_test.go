package image_test

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

var driverOfVariable = image.Default{
	Name: "driver", Variable: "DRIVER_IMAGE", Field: "driver", Repository: "nvcr.io/nvidia", Image: "driver",
	Version: "595.91.07", PerSystem: true,
}

// Each key comes from the spec, then from the variable, then from the default.
func TestVariables(t *testing.T) {
	tests := map[string]struct {
		value string
		spec  v1.ImageSpec
		want  string
	}{
		"none":               {want: "nvcr.io/nvidia/driver:595.91.07-rhel9"},
		"a mirror":           {value: "mirror.local:5000/a/driver:1", want: "mirror.local:5000/a/driver:1-rhel9"},
		"a digest":           {value: "mirror.local/driver@" + digest, want: "mirror.local/driver@" + digest},
		"a tag and a digest": {value: "mirror.local/driver:1@" + digest, want: "mirror.local/driver@" + digest},
		"an address of IPv6": {value: "[fd00::1]:5000/driver:1", want: "[fd00::1]:5000/driver:1-rhel9"},
		"the version of the spec": {
			value: "mirror.local/driver@" + digest, spec: v1.ImageSpec{Version: "580.1"},
			want: "mirror.local/driver:580.1-rhel9",
		},
		"the repository of the spec": {
			value: "mirror.local/driver:580.1", spec: v1.ImageSpec{Repository: "example.com"},
			want: "example.com/driver:580.1-rhel9",
		},
		"the name of the spec": {
			value: "mirror.local/driver:580.1", spec: v1.ImageSpec{Image: "my-driver"},
			want: "mirror.local/my-driver:580.1-rhel9",
		},
		"the reference of the spec": {
			value: "mirror.local/driver:580.1", spec: v1.ImageSpec{Image: "example.com/driver:1"},
			want: "example.com/driver:1-rhel9",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			overrides, ignored := image.FromVariables([]image.Default{driverOfVariable},
				func(name string) string { return map[string]string{"DRIVER_IMAGE": test.value}[name] })
			g.Expect(ignored).To(BeEmpty())
			ref, err := overrides.Of(driverOfVariable).Resolve(test.spec, "-rhel9")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(ref.Image).To(Equal(test.want))
			g.Expect(overrides.Of(toolkit)).To(Equal(toolkit), "another image")
		})
	}
}

func TestIgnoredVariables(t *testing.T) {
	const incomplete, misnamed = "has no registry, or no tag and no digest: set a reference such as " +
		"nvcr.io/nvidia/driver:595.91.07", "is not named driver: copy nvcr.io/nvidia/driver under its own name, or set the " +
		"image in spec.driver"
	for value, want := range map[string]string{
		"nvcr.io/nvidia/vgpu-driver:1":      misnamed,
		"nvcr.io/nvidia/driver-manager:1":   misnamed,
		"nvcr.io/nvidia/gpu-operator:v1":    misnamed,
		"nvcr.io/nvidia/driver":             incomplete,
		"driver:1":                          incomplete,
		"nvcr.io/nvidia/driver:":            incomplete,
		"nvcr.io/nvidia/driver@sha256:123":  incomplete,
		"https://nvcr.io/nvidia/driver:1 x": incomplete,
	} {
		g := NewWithT(t)
		overrides, ignored := image.FromVariables([]image.Default{driverOfVariable}, func(string) string { return value })
		g.Expect(overrides).To(BeEmpty(), value)
		g.Expect(ignored).To(ConsistOf(And(HavePrefix("the operator's variable DRIVER_IMAGE is ignored: "),
			ContainSubstring(value), HaveSuffix(want))))
	}
}
