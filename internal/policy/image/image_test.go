package image_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Defaults as operands declare them.
var (
	driver = image.Default{
		Name: "driver", Repository: "nvcr.io/nvidia", Image: "driver", Version: "595.91.07", PerSystem: true,
	}
	manager = image.Default{
		Name: "driver-manager", Repository: "nvcr.io/nvidia/cloud-native", Image: "k8s-driver-manager", Version: "v0.12.0",
	}
	toolkit = image.Default{
		Name: "container-toolkit", Repository: "nvcr.io/nvidia/k8s", Image: "container-toolkit", Version: "v1.20.0",
	}
	plugin = image.Default{
		Name: "device-plugin", Repository: "nvcr.io/nvidia", Image: "k8s-device-plugin", Version: "v0.20.0",
	}
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestResolve(t *testing.T) {
	tests := map[string]struct {
		fallback image.Default
		spec     v1.ImageSpec
		suffix   string
		want     image.Reference
	}{
		"an empty spec means the published image": {
			fallback: toolkit,
			want:     image.Reference{Image: "nvcr.io/nvidia/k8s/container-toolkit:v1.20.0", Version: "v1.20.0"},
		},
		"a version alone keeps repository and name": {
			fallback: plugin,
			spec:     v1.ImageSpec{Version: "v0.17.1"},
			want:     image.Reference{Image: "nvcr.io/nvidia/k8s-device-plugin:v0.17.1", Version: "v0.17.1"},
		},
		"a repository alone is a mirror of the published image": {
			fallback: manager,
			spec:     v1.ImageSpec{Repository: "registry.local:5000/mirror"},
			want:     image.Reference{Image: "registry.local:5000/mirror/k8s-driver-manager:v0.12.0", Version: "v0.12.0"},
		},
		"a slash at the end of the repository is not doubled": {
			fallback: manager,
			spec:     v1.ImageSpec{Repository: "registry.local/mirror/"},
			want:     image.Reference{Image: "registry.local/mirror/k8s-driver-manager:v0.12.0", Version: "v0.12.0"},
		},
		"a name alone keeps repository and version": {
			fallback: toolkit,
			spec:     v1.ImageSpec{Image: "my-toolkit"},
			want:     image.Reference{Image: "nvcr.io/nvidia/k8s/my-toolkit:v1.20.0", Version: "v1.20.0"},
		},
		"all three keys replace all three defaults": {
			fallback: toolkit,
			spec:     v1.ImageSpec{Repository: "example.com/a", Image: "b", Version: "c"},
			want:     image.Reference{Image: "example.com/a/b:c", Version: "c"},
		},
		"the suffix follows a tag": {
			fallback: driver, suffix: "-ubuntu24.04",
			spec: v1.ImageSpec{Version: "580.178.04"},
			want: image.Reference{Image: "nvcr.io/nvidia/driver:580.178.04-ubuntu24.04", Version: "580.178.04-ubuntu24.04"},
		},
		"the suffix follows the default tag": {
			fallback: driver, suffix: "-rhel9",
			want: image.Reference{Image: "nvcr.io/nvidia/driver:595.91.07-rhel9", Version: "595.91.07-rhel9"},
		},
		"a digest is joined by @ and takes no suffix": {
			fallback: driver, suffix: "-ubuntu24.04",
			spec: v1.ImageSpec{Version: digest},
			want: image.Reference{Image: "nvcr.io/nvidia/driver@" + digest, Version: digest},
		},
		"the suffix follows a full reference": {
			fallback: driver, suffix: "-ubuntu24.04",
			spec: v1.ImageSpec{Image: "example.com/drivers/driver:1"},
			want: image.Reference{Image: "example.com/drivers/driver:1-ubuntu24.04", Version: "1-ubuntu24.04"},
		},
		"a full reference that ends with the suffix": {
			fallback: driver, suffix: "-ubuntu24.04",
			spec: v1.ImageSpec{Image: "example.com/drivers/driver:1-ubuntu24.04"},
			want: image.Reference{Image: "example.com/drivers/driver:1-ubuntu24.04", Version: "1-ubuntu24.04"},
		},
		"a full reference by digest takes no suffix": {
			fallback: driver, suffix: "-ubuntu24.04",
			spec: v1.ImageSpec{Image: "example.com/driver:1@" + digest},
			want: image.Reference{Image: "example.com/driver:1@" + digest, Version: digest},
		},
		"a tag with a digest takes no suffix": {
			fallback: driver, suffix: "-ubuntu24.04",
			spec: v1.ImageSpec{Version: "595.91.07@" + digest},
			want: image.Reference{Image: "nvcr.io/nvidia/driver:595.91.07@" + digest, Version: digest},
		},
		"a name with a path below its repository": {
			fallback: driver, suffix: "-ubuntu24.04",
			spec: v1.ImageSpec{Repository: "nvcr.io", Image: "nvidia/driver", Version: "580.1"},
			want: image.Reference{Image: "nvcr.io/nvidia/driver:580.1-ubuntu24.04", Version: "580.1-ubuntu24.04"},
		},
		"the port of a registry is no tag": {
			fallback: toolkit,
			spec:     v1.ImageSpec{Image: "registry.local:5000/toolkit"},
			want:     image.Reference{Image: "registry.local:5000/toolkit", Version: "latest"},
		},
		"a full reference with port and tag": {
			fallback: toolkit,
			spec:     v1.ImageSpec{Image: "registry.local:5000/nvidia/toolkit:v9"},
			want:     image.Reference{Image: "registry.local:5000/nvidia/toolkit:v9", Version: "v9"},
		},
		"a full reference by tag and digest has the digest as its version": {
			fallback: toolkit,
			spec:     v1.ImageSpec{Image: "registry.local:5000/toolkit:v9@" + digest},
			want:     image.Reference{Image: "registry.local:5000/toolkit:v9@" + digest, Version: digest},
		},
		"a name with a tag is a full reference": {
			fallback: toolkit,
			spec:     v1.ImageSpec{Image: "toolkit:v9"},
			want:     image.Reference{Image: "toolkit:v9", Version: "v9"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := test.fallback.Resolve(test.spec, test.suffix)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	const whole = `image "example.com/driver:1" is a full reference: remove repository and version`
	tests := map[string]struct {
		fallback image.Default
		spec     v1.ImageSpec
		want     string
	}{
		"a full reference next to a version": {
			fallback: driver, spec: v1.ImageSpec{Image: "example.com/driver:1", Version: "2"}, want: whole,
		},
		"a name with a path next to a version alone": {
			fallback: driver, spec: v1.ImageSpec{Image: "example.com/driver", Version: "2"},
			want: `image "example.com/driver" is a full reference: remove repository and version`,
		},
		"a full reference next to a repository": {
			fallback: driver, spec: v1.ImageSpec{Image: "example.com/driver:1", Repository: "example.org"}, want: whole,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := test.fallback.Resolve(test.spec, "")
			if err == nil || err.Error() != test.want {
				t.Errorf("got %+v and error %v, want error %q", got, err, test.want)
			}
		})
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
		"a full reference is used as it is": {
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

func TestIsSet(t *testing.T) {
	for _, spec := range []v1.ImageSpec{
		{Repository: "a"}, {Image: "a"}, {Version: "a"}, {ImagePullPolicy: "Always"}, {ImagePullSecrets: []string{"a"}},
	} {
		if !image.IsSet(spec) {
			t.Errorf("%v is not set", spec)
		}
	}
	if image.IsSet(v1.ImageSpec{}) {
		t.Error("an empty one is set")
	}
}

func TestOwnImageIsThePublishedOne(t *testing.T) {
	if got := image.Operator(); got.Image != "gpu-operator" || got.Repository != "ghcr.io/clusterpolicy" {
		t.Errorf("got %v", got)
	}
	if got := image.Own(); !strings.HasPrefix(got, "ghcr.io/clusterpolicy/gpu-operator:") || strings.HasSuffix(got, ":") {
		t.Errorf("got %q", got)
	}
}

func TestTag(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for reference, want := range map[string]string{
		"ghcr.io/a/gpu-operator:v1.2.3": "v1.2.3", "ghcr.io/a/gpu-operator:v1.2.3" + digest: "v1.2.3",
		"ghcr.io/a/gpu-operator" + digest: "", "localhost:5000/gpu-operator": "", "localhost:5000/a:dev": "dev", "a": "",
	} {
		if got := image.Tag(reference); got != want {
			t.Errorf("the tag of %s is %q, want %q", reference, got, want)
		}
	}
}
