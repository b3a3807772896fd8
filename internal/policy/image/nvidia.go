package image

import (
	"regexp"
	"slices"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// The image of NVIDIA's own operator, with its validator, which its chart writes into every policy. Values and
// policies name it in any registry, as air-gapped clusters have a mirror. The chart has the same rule for the image of
// the operator (gpu-operator.isNvidias); testdata/nvidias.yaml has the cases for both.
var (
	// nvidiasRegistries have no image of this operator.
	nvidiasRegistries = []string{"nvcr.io/nvidia", "ghcr.io/nvidia"}
	// nvidiasValidator was a separate image in earlier releases.
	nvidiasValidator = "gpu-operator-validator"
	// nvidiasReleases are named by year and month. This operator's are not.
	nvidiasReleases = regexp.MustCompile(`^v?(2[2-9]|[3-9][0-9])[.][0-9]`)
	// nvidiasFirstReleases could be this operator's, except in a path of NVIDIA's.
	nvidiasFirstReleases = regexp.MustCompile(`^v?1[.]([0-9]|1[01])[.][0-9]`)
	nvidiasPaths         = regexp.MustCompile(`(^|/)nvidia(/cloud-native)?$`)
	// Mirrors with one repository for all images have the name of the image in the tag, others the path in the name.
	nvidiasTags = regexp.MustCompile(
		`(^|[-_.])gpu-operator(-validator[-_.]|[-_.]v?(2[2-9]|[3-9][0-9])[.][0-9])|(^|[-_.])gpu-operator-validator$`)
	nvidiasValidators = regexp.MustCompile(`(^|[-_.])` + nvidiasValidator + `$`)
	// nvidiasOthers are names of other images of NVIDIA's, and of repositories for all of them.
	nvidiasOthers = []string{
		"nvidia", "cuda", "driver", "k8s-driver-manager", "container-toolkit", "k8s-device-plugin", "dcgm", "dcgm-exporter",
		"k8s-mig-manager",
	}
)

// Foreign returns why a spec of the validator does not name this operator's image, or may not, though its author seems
// to have one of NVIDIA's in a mirror in mind; empty otherwise. NVIDIA's chart writes its own image into every policy,
// under its own name also in a mirror: that is no mistake of the author.
func Foreign(spec v1.ImageSpec) string {
	repository, name, _ := partsOf(spec)
	const remedy = "remove repository, image and version, or name a copy of this operator's image"
	switch {
	case isInAny(nvidiasRegistries, repository), name == "", name == operator.Image, name == nvidiasValidator:
		return ""
	case isNvidias(spec):
		return "names the image of NVIDIA's operator, which has no program of this one: the operator's own image is used " +
			"instead; " + remedy
	case slices.Contains(nvidiasOthers, name):
		return "names an image " + name + ", which does not look like a copy of this operator's own, whose program it " +
			"must have: " + remedy
	}
	return ""
}

// isNvidias reports whether a spec names the image of NVIDIA's operator, which has no on-node program of this one.
func isNvidias(spec v1.ImageSpec) bool {
	repository, name, version := partsOf(spec)
	switch {
	case isInAny(nvidiasRegistries, repository), nvidiasValidators.MatchString(name), nvidiasTags.MatchString(version):
		return true
	case name != "" && name != operator.Image && !strings.HasSuffix(name, "-"+operator.Image):
		return false
	}
	return nvidiasReleases.MatchString(version) ||
		nvidiasFirstReleases.MatchString(version) && nvidiasPaths.MatchString(repository)
}

// partsOf returns the parts of an image, also of a full reference.
func partsOf(spec v1.ImageSpec) (repository, name, version string) {
	if strings.ContainsAny(spec.Image, "/:@") {
		return split(spec.Image)
	}
	return spec.Repository, spec.Image, spec.Version
}

func isInAny(registries []string, repository string) bool {
	return slices.ContainsFunc(registries, func(registry string) bool {
		return strings.HasPrefix(repository+"/", registry+"/")
	})
}

// split returns the parts of a full reference.
func split(reference string) (repository, name, version string) {
	if at := strings.LastIndex(reference, "/"); at >= 0 {
		repository, reference = reference[:at], reference[at+1:]
	}
	if at := strings.IndexAny(reference, ":@"); at >= 0 {
		return repository, reference[:at], reference[at+1:]
	}
	return repository, reference, ""
}
