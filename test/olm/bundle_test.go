package olm

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// explanation is why a warning of a suite is no fault of the bundle.
type explanation struct {
	suite string
	// warning is a part of its text.
	warning string
	because string
}

// explained are the warnings of every bundle.
func explained() []explanation {
	const (
		removed = `removed in v1.25. More info: https://kubernetes.io/docs/reference/using-api/deprecation-guide/#v1-25. ` +
			`Migrate the API(s) for runtimeclasses: (["ClusterServiceVersion.Spec.InstallStrategy.StrategySpec.`
		inRight = "a right names no version of an API: the suite warns of each right on the group node.k8s.io; the " +
			"operator uses its version v1"
	)
	return []explanation{
		{"operatorhub v2", removed, inRight},
		{"removed APIs", removed, inRight},
		{
			"architectures", "check if the CSV has a missing or invalid node affinity configuration for the image",
			"the operator's image has the architectures of nodes with GPUs; where a cluster has others beside them, " +
				"an administrator sets config.affinity of the Subscription",
		},
	}
}

// The bundle of the working tree.
func TestTheBundleIsValid(t *testing.T) {
	playRegistry(t)
	bundle := filepath.Join(root, "bundle")
	rows := append(explained(), explanation{
		"good practices", `channel(s) ["alpha"] are not following the recommended naming convention`,
		"what is not released is in no channel for production",
	})
	judge(t, validate(t, image(t, bundle), filepath.Join(bundle, "bundle.Dockerfile"), suites()), rows)
}

// The bundle of a release, whose channels, version and image are others.
func TestTheBundleOfAReleaseIsValid(t *testing.T) {
	bundle := filepath.Join(t.TempDir(), "bundle")
	generate := exec.CommandContext(t.Context(), "go", "run", "./config/manifests/generate", "-version=1.2.3",
		"-replaces=1.2.2", "-image=registry.example.com/gpu-operator:v1.2.3", "-created=2026-11-27T12:00:00Z",
		"-out="+bundle)
	generate.Dir = root
	if output, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("generating the bundle: %v\n%s", err, output)
	}
	playRegistry(t)
	rows := append(explained(), explanation{
		"good practices", `channel(s) ["v1.2"] are not following the recommended naming convention`,
		"a channel for each minor release, as the package of NVIDIA's operator has; the channel stable is the other one",
	})
	judge(t, validate(t, image(t, bundle), filepath.Join(bundle, "bundle.Dockerfile"), suites()), rows)
}

// judge fails for each finding that is an error or has no explanation, and for each explanation without a warning.
func judge(t *testing.T, all []finding, rows []explanation) {
	t.Helper()
	found, stale := unexplained(all, rows)
	for _, one := range found {
		t.Errorf("%s", one)
	}
	for _, row := range stale {
		t.Errorf("%s no longer warns of %q: remove the explanation", row.suite, row.warning)
	}
	for _, row := range rows {
		t.Logf("%s: warns %q: %s", row.suite, row.warning, row.because)
	}
}
