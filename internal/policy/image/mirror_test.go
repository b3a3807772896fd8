package image_test

import (
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

func TestMirror(t *testing.T) {
	tests := map[string]struct{ registry, reference, want string }{
		"no registry changes nothing": {"", "nvcr.io/nvidia/driver:1", "nvcr.io/nvidia/driver:1"},
		"the host is replaced": {
			"mirror.local",
			"nvcr.io/nvidia/driver:1",
			"mirror.local/nvidia/driver:1",
		},
		"the host is replaced by host and port": {
			"mirror.local:5000",
			"nvcr.io/nvidia/driver:1",
			"mirror.local:5000/nvidia/driver:1",
		},
		"the host is replaced by host and path": {
			"mirror.local/proxy",
			"nvcr.io/nvidia/driver:1",
			"mirror.local/proxy/nvidia/driver:1",
		},
		"a slash at the end does not count": {
			"mirror.local/proxy/",
			"nvcr.io/nvidia/driver:1",
			"mirror.local/proxy/nvidia/driver:1",
		},
		"a long path stays": {
			"mirror.local",
			"nvcr.io/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu24.04",
			"mirror.local/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu24.04",
		},
		"a host with a port": {
			"mirror.local",
			"registry.local:5000/nvidia/driver:1",
			"mirror.local/nvidia/driver:1",
		},
		"a host with a port and an image alone": {"mirror.local", "registry.local:5000/driver", "mirror.local/driver"},
		"an address of IPv6":                    {"mirror.local", "[fd00::1]:5000/driver:1", "mirror.local/driver:1"},
		"localhost":                             {"mirror.local", "localhost/driver:1", "mirror.local/driver:1"},
		"localhost with a port": {
			"mirror.local",
			"localhost:5000/a/driver:1",
			"mirror.local/a/driver:1",
		},
		"a host in capital letters": {"mirror.local", "REGISTRY/a/driver:1", "mirror.local/a/driver:1"},
		"a digest": {
			"mirror.local",
			"nvcr.io/nvidia/driver@" + digest,
			"mirror.local/nvidia/driver@" + digest,
		},
		"a tag and a digest": {
			"mirror.local:5000",
			"nvcr.io/nvidia/driver:1@" + digest,
			"mirror.local:5000/nvidia/driver:1@" + digest,
		},
		"a short name":               {"mirror.local", "ubuntu:24.04", "mirror.local/library/ubuntu:24.04"},
		"a short name without a tag": {"mirror.local", "ubuntu", "mirror.local/library/ubuntu"},
		"a short name with a digest": {
			"mirror.local",
			"ubuntu@" + digest,
			"mirror.local/library/ubuntu@" + digest,
		},
		"a short name in its folder": {
			"mirror.local/hub",
			"library/ubuntu:24.04",
			"mirror.local/hub/library/ubuntu:24.04",
		},
		"a name of Docker Hub": {
			"mirror.local",
			"nvidia/cuda:13.0.0",
			"mirror.local/nvidia/cuda:13.0.0",
		},
		"Docker Hub by name": {
			"mirror.local",
			"docker.io/nvidia/cuda:13.0.0",
			"mirror.local/nvidia/cuda:13.0.0",
		},
		"Docker Hub by name with a short name": {
			"mirror.local",
			"docker.io/ubuntu:24.04",
			"mirror.local/library/ubuntu:24.04",
		},
		"Docker Hub by its other name": {
			"mirror.local",
			"index.docker.io/ubuntu",
			"mirror.local/library/ubuntu",
		},
		"what the mirror has is left": {
			"mirror.local:5000",
			"mirror.local:5000/nvidia/driver:1",
			"mirror.local:5000/nvidia/driver:1",
		},
		"what the path of the mirror has is left": {
			"mirror.local/proxy",
			"mirror.local/proxy/nvidia/driver:1",
			"mirror.local/proxy/nvidia/driver:1",
		},
		"another path of the same host is another": {
			"mirror.local/proxy",
			"mirror.local/nvidia/driver:1",
			"mirror.local/proxy/nvidia/driver:1",
		},
		"a path that only begins alike is another": {
			"mirror.local/proxy",
			"mirror.local/proxy2/driver:1",
			"mirror.local/proxy/proxy2/driver:1",
		},
		"the same host with another port": {
			"mirror.local:5000",
			"mirror.local:5001/driver:1",
			"mirror.local:5000/driver:1",
		},
		"no reference stays none":                  {"mirror.local", "", ""},
		"a tag with a dot makes no host of a name": {"mirror.local", "team/app:v1.2", "mirror.local/team/app:v1.2"},
		"a name with a dot after the first part":   {"mirror.local", "team/app.web:1", "mirror.local/team/app.web:1"},
		"a digest makes no host of a name": {
			"mirror.local",
			"team/app@" + digest,
			"mirror.local/team/app@" + digest,
		},
		"the path of a mirror counts as a whole": {"mirror.local/a/b", "nvcr.io/x:1", "mirror.local/a/b/x:1"},
		"the registry of the image itself as mirror": {
			"nvcr.io/team",
			"nvcr.io/nvidia/driver:1",
			"nvcr.io/team/nvidia/driver:1",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := image.Mirror(test.registry, test.reference)
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if again := image.Mirror(test.registry, got); again != got {
				t.Errorf("mirrored twice: %q", again)
			}
		})
	}
}

func TestUnmirror(t *testing.T) {
	const like = "ghcr.io/example/operator:1"
	for name, test := range map[string]struct{ registry, reference, want string }{
		"no registry": {"", "mirror.local/example/operator:2", "mirror.local/example/operator:2"},
		"the registry is replaced": {
			"mirror.local/proxy/", "mirror.local/proxy/example/operator:2", "ghcr.io/example/operator:2",
		},
		"an image without a registry":   {"mirror.local", "example/operator:2", "example/operator:2"},
		"another image without version": {"mirror.local", "mirror.local/example/driver", "mirror.local/example/driver"},
		"the image without version":     {"mirror.local", "mirror.local/example/operator", "ghcr.io/example/operator"},
		"with a digest": {
			"mirror.local", "mirror.local/example/operator:2@sha256:00", "ghcr.io/example/operator:2@sha256:00",
		},
		"a repository of the mirror's own": {"mirror.local", "mirror.local/team/operator:2", "mirror.local/team/operator:2"},
		"an image of another registry":     {"mirror", "mirror.local/a/operator:2", "mirror.local/a/operator:2"},
	} {
		if got := image.Unmirror(test.registry, test.reference, like); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
