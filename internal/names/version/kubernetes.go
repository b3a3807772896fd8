package version

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// The oldest and the newest minor release of Kubernetes that are supported, as in "1.37". test/controlplane pins the
// patch releases that tests run on. Only the main tests run on the newest one (make test-next).
const (
	OldestKubernetes = "1.32"
	NewestKubernetes = "1.37"
)

// OutOfRange returns one sentence if a cluster of this version, such as v1.34.2 or v1.34.1+k3s1, is older than what is
// supported or newer than what is tested, and an empty string if it is neither. It fails if server is not a version.
func OutOfRange(server string) (string, error) {
	parsed, err := version.ParseGeneric(server)
	if err != nil {
		return "", fmt.Errorf("%q is no version of Kubernetes: give one such as v%s.0", server, NewestKubernetes)
	}
	oldest, newest := version.MustParseGeneric(OldestKubernetes), version.MustParseGeneric(NewestKubernetes)
	switch minor := version.MajorMinor(parsed.Major(), parsed.Minor()); {
	case minor.LessThan(oldest):
		return fmt.Sprintf("Kubernetes %s is not supported: upgrade the cluster to %s or newer", server,
			OldestKubernetes), nil
	case minor.GreaterThan(newest):
		return fmt.Sprintf("Kubernetes %s is newer than this release has been tested on, %s to %s", server, OldestKubernetes,
			NewestKubernetes), nil
	}
	return "", nil
}

// Minor returns the second number of a minor release of Kubernetes, such as 36 of 1.36. It panics if release
// is not a version: it is meant for the constants of this package.
func Minor(release string) int {
	return int(version.MustParseGeneric(release).Minor())
}
