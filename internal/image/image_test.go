package image_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestResolve(t *testing.T) {
	tests := map[string]struct {
		component image.Component
		spec      v1.ImageSpec
		suffix    string
		want      image.Reference
	}{
		"an empty spec means the published image": {
			component: image.Toolkit,
			want:      image.Reference{Image: "nvcr.io/nvidia/k8s/container-toolkit:v1.20.0", Version: "v1.20.0"},
		},
		"a version alone keeps repository and name": {
			component: image.DevicePlugin,
			spec:      v1.ImageSpec{Version: "v0.17.1"},
			want:      image.Reference{Image: "nvcr.io/nvidia/k8s-device-plugin:v0.17.1", Version: "v0.17.1"},
		},
		"a repository alone is a mirror of the published image": {
			component: image.DriverManager,
			spec:      v1.ImageSpec{Repository: "registry.local:5000/mirror"},
			want:      image.Reference{Image: "registry.local:5000/mirror/k8s-driver-manager:v0.12.0", Version: "v0.12.0"},
		},
		"a slash at the end of the repository is not doubled": {
			component: image.DriverManager,
			spec:      v1.ImageSpec{Repository: "registry.local/mirror/"},
			want:      image.Reference{Image: "registry.local/mirror/k8s-driver-manager:v0.12.0", Version: "v0.12.0"},
		},
		"a name alone keeps repository and version": {
			component: image.Toolkit,
			spec:      v1.ImageSpec{Image: "my-toolkit"},
			want:      image.Reference{Image: "nvcr.io/nvidia/k8s/my-toolkit:v1.20.0", Version: "v1.20.0"},
		},
		"all three keys replace all three defaults": {
			component: image.Toolkit,
			spec:      v1.ImageSpec{Repository: "example.com/a", Image: "b", Version: "c"},
			want:      image.Reference{Image: "example.com/a/b:c", Version: "c"},
		},
		"the suffix follows a tag": {
			component: image.Driver, suffix: "-ubuntu24.04",
			spec: v1.ImageSpec{Version: "580.178.04"},
			want: image.Reference{Image: "nvcr.io/nvidia/driver:580.178.04-ubuntu24.04", Version: "580.178.04-ubuntu24.04"},
		},
		"the suffix follows the default tag": {
			component: image.Driver, suffix: "-rhel9",
			want: image.Reference{Image: "nvcr.io/nvidia/driver:595.91.07-rhel9", Version: "595.91.07-rhel9"},
		},
		"a digest is joined by @ and takes no suffix": {
			component: image.Driver, suffix: "-ubuntu24.04",
			spec: v1.ImageSpec{Version: digest},
			want: image.Reference{Image: "nvcr.io/nvidia/driver@" + digest, Version: digest},
		},
		"a whole reference is used as it is, without suffix": {
			component: image.Driver, suffix: "-ubuntu24.04",
			spec: v1.ImageSpec{Image: "example.com/drivers/driver:1"},
			want: image.Reference{Image: "example.com/drivers/driver:1", Version: "1"},
		},
		"the port of a registry is no tag": {
			component: image.Toolkit,
			spec:      v1.ImageSpec{Image: "registry.local:5000/toolkit"},
			want:      image.Reference{Image: "registry.local:5000/toolkit", Version: "latest"},
		},
		"a whole reference with port and tag": {
			component: image.Toolkit,
			spec:      v1.ImageSpec{Image: "registry.local:5000/nvidia/toolkit:v9"},
			want:      image.Reference{Image: "registry.local:5000/nvidia/toolkit:v9", Version: "v9"},
		},
		"a whole reference by tag and digest has the digest as its version": {
			component: image.Toolkit,
			spec:      v1.ImageSpec{Image: "registry.local:5000/toolkit:v9@" + digest},
			want:      image.Reference{Image: "registry.local:5000/toolkit:v9@" + digest, Version: digest},
		},
		"a name with a tag is a whole reference": {
			component: image.Toolkit,
			spec:      v1.ImageSpec{Image: "toolkit:v9"},
			want:      image.Reference{Image: "toolkit:v9", Version: "v9"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := image.Resolve(test.component, test.spec, test.suffix)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The defaults are the published images that NVIDIA's chart of the same release names.
func TestDefaults(t *testing.T) {
	for component, want := range map[image.Component]string{
		image.Driver:        "nvcr.io/nvidia/driver:595.91.07-os",
		image.DriverManager: "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
		image.GDS:           "nvcr.io/nvidia/cloud-native/nvidia-fs:2.29.4-os",
		image.GDRCopy:       "nvcr.io/nvidia/cloud-native/gdrdrv:v2.6-os",
		image.Toolkit:       "nvcr.io/nvidia/k8s/container-toolkit:v1.20.0",
		image.DevicePlugin:  "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
		image.GFD:           "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
		image.DCGM:          "nvcr.io/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu24.04",
		image.DCGMExporter:  "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless",
		image.MIGManager:    "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0",
	} {
		suffix := ""
		if strings.HasSuffix(want, "-os") {
			suffix = "-os"
		}
		got, err := image.Resolve(component, v1.ImageSpec{}, suffix)
		if err != nil || got.Image != want {
			t.Errorf("%s: got %s, %v, want %s", component, got.Image, err, want)
		}
	}
}

func TestResolveRefuses(t *testing.T) {
	const whole = `image "example.com/driver:1" is a whole reference: remove repository and version`
	tests := map[string]struct {
		component image.Component
		spec      v1.ImageSpec
		want      string
	}{
		"a whole reference next to a version": {
			component: image.Driver, spec: v1.ImageSpec{Image: "example.com/driver:1", Version: "2"}, want: whole,
		},
		"a whole reference next to a repository": {
			component: image.Driver, spec: v1.ImageSpec{Image: "example.com/driver:1", Repository: "example.org"}, want: whole,
		},
		"a component that is not in the catalogue": {
			component: "teapot", want: `image "teapot" has no default: this is a defect of the operator`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := image.Resolve(test.component, test.spec, "")
			if err == nil || err.Error() != test.want {
				t.Errorf("got %+v and error %v, want error %q", got, err, test.want)
			}
		})
	}
}

// The image of NVIDIA's operator, which its chart writes into every policy, has no gpu-node.
func TestImageOfNVIDIAsOperatorMeansOurs(t *testing.T) {
	for _, spec := range []v1.ImageSpec{
		{Repository: "nvcr.io/nvidia", Image: "gpu-operator", Version: "v26.7.0"},
		{Repository: "nvcr.io/nvidia/cloud-native", Image: "gpu-operator-validator", Version: "v25.3.0"},
		{Image: "nvcr.io/nvidia/gpu-operator:v26.7.0"},
	} {
		got, err := image.Helper(spec, "example.com/own:v1")
		if err != nil || got.Image != "example.com/own:v1" {
			t.Errorf("%+v: got %s, %v", spec, got.Image, err)
		}
	}
}

func TestHelper(t *testing.T) {
	const own = "registry.local:5000/gpu-operator:v1.2.3"
	tests := map[string]struct {
		spec v1.ImageSpec
		want image.Reference
	}{
		"no key means the image that the operator runs from": {
			want: image.Reference{Image: own, Version: "v1.2.3"},
		},
		"pull policy and secrets name no image": {
			spec: v1.ImageSpec{ImagePullPolicy: "Always", ImagePullSecrets: []string{"s"}},
			want: image.Reference{Image: own, Version: "v1.2.3"},
		},
		"missing keys come from the published image": {
			spec: v1.ImageSpec{Version: "v9"},
			want: image.Reference{Image: "ghcr.io/clusterpolicy/gpu-operator:v9", Version: "v9"},
		},
		"a whole reference is used as it is": {
			spec: v1.ImageSpec{Image: "example.com/helper@" + digest},
			want: image.Reference{Image: "example.com/helper@" + digest, Version: digest},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := image.Helper(test.spec, own)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestOwnImageIsThePublishedOne(t *testing.T) {
	if got := image.Own(); !strings.HasPrefix(got, "ghcr.io/clusterpolicy/gpu-operator:") || strings.HasSuffix(got, ":") {
		t.Errorf("got %q", got)
	}
}
