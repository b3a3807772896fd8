package image

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/version"
)

// Component names an image that the operator can run.
type Component string

// The images of the catalogue. The MPS daemon and config-manager use the device plugin's image, the node
// status exporter the operator's.
const (
	Driver        Component = "driver"
	DriverManager Component = "driver-manager"
	GDS           Component = "gds"
	GDRCopy       Component = "gdrcopy"
	Toolkit       Component = "container-toolkit"
	DevicePlugin  Component = "device-plugin"
	GFD           Component = "gpu-feature-discovery"
	DCGM          Component = "dcgm"
	DCGMExporter  Component = "dcgm-exporter"
	MIGManager    Component = "mig-manager"
	OperatorImage Component = "gpu-operator"
)

type parts struct{ repository, image, version string }

// defaults are NVIDIA's published images, at the versions that this release was made for.
var defaults = map[Component]parts{
	Driver:        {"nvcr.io/nvidia", "driver", "595.91.07"},
	DriverManager: {"nvcr.io/nvidia/cloud-native", "k8s-driver-manager", "v0.12.0"},
	GDS:           {"nvcr.io/nvidia/cloud-native", "nvidia-fs", "2.29.4"},
	GDRCopy:       {"nvcr.io/nvidia/cloud-native", "gdrdrv", "v2.6"},
	Toolkit:       {"nvcr.io/nvidia/k8s", "container-toolkit", "v1.20.0"},
	DevicePlugin:  {"nvcr.io/nvidia", "k8s-device-plugin", "v0.20.0"},
	GFD:           {"nvcr.io/nvidia", "k8s-device-plugin", "v0.20.0"},
	DCGM:          {"nvcr.io/nvidia/cloud-native", "dcgm", "4.6.0-1-ubuntu24.04"},
	DCGMExporter:  {"nvcr.io/nvidia/k8s", "dcgm-exporter", "4.6.0-4.8.3-distroless"},
	MIGManager:    {"nvcr.io/nvidia/cloud-native", "k8s-mig-manager", "v0.15.0"},
	OperatorImage: {"ghcr.io/clusterpolicy", "gpu-operator", version.Version},
}

// Components returns all components that have an image, sorted by name.
func Components() []Component { return slices.Sorted(maps.Keys(defaults)) }

// PerSystem reports whether there is an image for each operating system of the nodes, which the suffix of
// its tag names, because it contains or builds kernel modules.
func (c Component) PerSystem() bool { return c == Driver || c == GDS || c == GDRCopy }

// Own returns the image of the operator and the on-node program of this release.
func Own() string {
	own := defaults[OperatorImage]
	return own.repository + "/" + own.image + ":" + own.version
}

// digestPrefix starts a version that is a digest rather than a tag.
const digestPrefix = "sha256:"

// Reference is a complete image reference.
type Reference struct {
	// Image is what the kubelet pulls.
	Image string
	// Version is its tag or digest, for display.
	Version string
}

// Resolve builds a reference from the spec; keys that are empty have the component's default. A complete
// reference in spec.Image is used unchanged. The suffix is appended to a tag, never to a digest or a complete
// reference: the driver's images have the operating system there.
func Resolve(component Component, spec v1.ImageSpec, suffix string) (Reference, error) {
	fallback, known := defaults[component]
	if !known {
		return Reference{}, fmt.Errorf("image %q has no default: this is a defect of the operator", component)
	}
	if strings.ContainsAny(spec.Image, "/:@") {
		if spec.Repository != "" || spec.Version != "" {
			return Reference{}, fmt.Errorf("image %q is a whole reference: remove repository and version", spec.Image)
		}
		return Reference{Image: spec.Image, Version: versionOf(spec.Image)}, nil
	}
	p := parts{
		repository: cmp.Or(spec.Repository, fallback.repository),
		image:      cmp.Or(spec.Image, fallback.image),
		version:    cmp.Or(spec.Version, fallback.version),
	}
	name := strings.TrimSuffix(p.repository, "/") + "/" + p.image
	if strings.HasPrefix(p.version, digestPrefix) {
		return Reference{Image: name + "@" + p.version, Version: p.version}, nil
	}
	tag := p.version + suffix
	return Reference{Image: name + ":" + tag, Version: tag}, nil
}

// versionOf returns the tag or digest of a complete reference; a port in the registry is no tag.
func versionOf(reference string) string {
	if _, digest, found := strings.Cut(reference, "@"); found {
		return digest
	}
	last := reference[strings.LastIndex(reference, "/")+1:]
	if _, tag, found := strings.Cut(last, ":"); found {
		return tag
	}
	return "latest"
}

// Named reports whether the spec of the validator names an image of the on-node program. The image of
// NVIDIA's own operator, which its chart writes into every policy, does not count: it means the image that
// belongs to the operator.
func Named(spec v1.ImageSpec) bool {
	if strings.HasPrefix(spec.Repository+"/"+spec.Image, "nvcr.io/nvidia/") ||
		strings.HasPrefix(spec.Image, "nvcr.io/nvidia/") {
		return false
	}
	return spec.Repository != "" || spec.Image != "" || spec.Version != ""
}

// Helper returns the image of the on-node program: own, the image that the operator itself runs from, unless
// the spec names another.
func Helper(spec v1.ImageSpec, own string) (Reference, error) {
	if !Named(spec) {
		return Reference{Image: own, Version: versionOf(own)}, nil
	}
	return Resolve(OperatorImage, spec, "")
}
