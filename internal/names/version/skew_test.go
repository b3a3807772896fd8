package version_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/version"
)

func TestSkew(t *testing.T) {
	for name, test := range map[string]struct{ plugin, operator, want string }{
		"the same":              {"v1.2.3", "v1.2.3", ""},
		"the same, without v":   {"v1.2.3", "1.2.3", ""},
		"the same, no releases": {"dev", "dev", ""},
		"older": {"v1.2.9", "v1.2.10", "the plugin v1.2.9 is older than the operator v1.2.10, and computes what its own " +
			"release does: install the plugin v1.2.10"},
		"older than a release, as its candidate": {"v1.2.3-rc.1", "v1.2.3", "the plugin v1.2.3-rc.1 is older than the " +
			"operator v1.2.3, and computes what its own release does: install the plugin v1.2.3"},
		"newer": {"v2.0.0", "1.9.9", "the plugin v2.0.0 is newer than the operator 1.9.9: kubectl gpu plan shows what the " +
			"upgrade of the operator changes; for anything else install the plugin 1.9.9"},
		"a plugin of no release": {"dev", "v1.2.3", "whether the plugin dev fits the operator v1.2.3 is unknown: dev is no " +
			"version of a release"},
		"an operator of no release": {"v1.2.3", "v1.2.3-5-g1234567", "whether the plugin v1.2.3 fits the operator " +
			"v1.2.3-5-g1234567 is unknown: v1.2.3-5-g1234567 is no version of a release"},
		"a number with a zero before": {"v1.02.3", "v1.2.3", "whether the plugin v1.02.3 fits the operator v1.2.3 is " +
			"unknown: v1.02.3 is no version of a release"},
	} {
		NewWithT(t).Expect(version.Skew(test.plugin, test.operator)).To(Equal(test.want), name)
	}
}
