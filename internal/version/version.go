// Package version has the version that the build stamps into the binaries, and the supported versions of
// Kubernetes.
package version

// Version is the released version, such as v1.2.3, or "dev" for a build from a working tree.
// Set with -ldflags "-X github.com/clusterpolicy/gpu-operator/internal/version.Version=...".
var Version = "dev"
