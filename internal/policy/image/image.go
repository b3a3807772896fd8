package image

import (
	"cmp"
	"fmt"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
)

// Default is an image that the operator runs unless the policy names another one. Each operand declares its own.
type Default struct {
	// Name of the image in the bundle's relatedImages, such as driver-manager.
	Name string
	// Field is the block of the spec that replaces its parts, such as driver.manager; empty for none.
	Field string
	// Variable of the operator's environment that replaces the default, such as DRIVER_IMAGE.
	Variable string
	// Repository, Image and Version are the parts that the block replaces, each on its own.
	Repository, Image, Version string
	// PerSystem: there is an image for each operating system of the nodes, which the end of its tag names, as it has
	// modules for their kernels.
	PerSystem bool
}

// operator is the image that holds the operator and the on-node program of this release.
var operator = Default{
	Name: "gpu-operator", Repository: "ghcr.io/clusterpolicy", Image: "gpu-operator", Version: version.Version,
}

// Operator is the image that holds the operator and the on-node program of this release.
func Operator() Default { return operator }

// Own is the reference of the operator's image.
func Own() string { return operator.Repository + "/" + operator.Image + ":" + operator.Version }

// BaseName returns the last part of the name of an image, without tag and digest.
func BaseName(reference string) string {
	_, name, _ := split(reference)
	return name
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

// Resolve builds a reference from the spec; keys that are empty have the default. The driver's images have the
// operating system at the end of their tag: the suffix is appended, also to a full reference that does not end with
// it, but never to a digest. It fails for a full reference with a repository or a version.
func (d Default) Resolve(spec v1.ImageSpec, suffix string) (Reference, error) {
	if spec.IsFullReference() {
		if spec.Repository != "" || spec.Version != "" {
			return Reference{}, fmt.Errorf("image %q is a full reference: remove repository and version", spec.Image)
		}
		reference := spec.Image
		if !strings.Contains(reference, "@") && !strings.HasSuffix(reference, suffix) {
			reference += suffix
		}
		return Reference{Image: reference, Version: versionOf(reference)}, nil
	}
	name := strings.TrimSuffix(cmp.Or(spec.Repository, d.Repository), "/") + "/" + cmp.Or(spec.Image, d.Image)
	version := cmp.Or(spec.Version, d.Version)
	if strings.HasPrefix(version, digestPrefix) {
		return Reference{Image: name + "@" + version, Version: version}, nil
	}
	if _, digest, pinned := strings.Cut(version, "@"); pinned {
		return Reference{Image: name + ":" + version, Version: digest}, nil
	}
	tag := version + suffix
	return Reference{Image: name + ":" + tag, Version: tag}, nil
}

// versionOf returns the tag or digest of a full reference; a port in the registry is no tag.
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

// Tag returns the tag of a full reference, also of one with a digest; empty if it has none.
func Tag(reference string) string {
	name, _, _ := strings.Cut(reference, "@")
	_, _, tag := split(name)
	return tag
}

// IsSet reports whether a spec sets any part of an image, or how it is pulled.
func IsSet(spec v1.ImageSpec) bool {
	return spec.Repository != "" || spec.Image != "" || spec.Version != "" || spec.ImagePullPolicy != "" ||
		len(spec.ImagePullSecrets) > 0
}

// Named reports whether the spec of the validator names an image of the on-node program. The image of
// NVIDIA's own operator, which its chart writes into every policy, does not count: it means the image that
// belongs to the operator.
func Named(spec v1.ImageSpec) bool {
	if isNvidias(spec) {
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
	return operator.Resolve(spec, "")
}
