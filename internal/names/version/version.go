// Package version has the version that the build stamps into the binaries, and the supported versions of
// Kubernetes.
package version

import "regexp"

// Version is the released version, such as v1.2.3, or "dev" for a build from a working tree.
// Set with -ldflags "-X github.com/clusterpolicy/gpu-operator/internal/names/version.Version=...".
var Version = "dev"

// AdmissionManifest returns the address of the manifest with the admission policies of a release, such as v1.2.3 or
// 1.2.3. For any other version it is that of the main branch.
func AdmissionManifest(release string) string {
	return "https://raw.githubusercontent.com/clusterpolicy/gpu-operator/" + tagOf(release) + "/bundle/admission.yaml"
}

// Runbooks returns the address of the page with a section for each alert, as the release has it. It is chosen as in
// AdmissionManifest.
func Runbooks(release string) string {
	return "https://github.com/clusterpolicy/gpu-operator/blob/" + tagOf(release) + "/docs/troubleshooting.md"
}

// tagOf returns the tag of a release, such as v1.2.3, and main for any other version.
func tagOf(release string) string {
	if match := releaseVersion.FindStringSubmatch(release); match != nil {
		return "v" + match[1]
	}
	return "main"
}

// releaseVersion matches the versions that have a tag. What git describe prints between two tags is none of them.
var releaseVersion = regexp.MustCompile(`^v?([0-9]+[.][0-9]+[.][0-9]+(-(alpha|beta|rc)[.]?[0-9]*)?)$`)
