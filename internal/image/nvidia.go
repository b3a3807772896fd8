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
)

// isNvidias reports whether a spec names the image of NVIDIA's operator, which has no on-node program of this one.
func isNvidias(spec v1.ImageSpec) bool {
	repository, name, version := spec.Repository, spec.Image, spec.Version
	if strings.ContainsAny(name, "/:@") {
		repository, name, version = split(name)
	}
	isIn := func(registry string) bool { return strings.HasPrefix(repository+"/", registry+"/") }
	switch {
	case slices.ContainsFunc(nvidiasRegistries, isIn), name == nvidiasValidator:
		return true
	case name != "" && name != operator.Image:
		return false
	}
	return nvidiasReleases.MatchString(version) ||
		nvidiasFirstReleases.MatchString(version) && nvidiasPaths.MatchString(repository)
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
