package version

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// Skew returns one sentence if the plugin of kubectl is older or newer than the operator, and an empty string if both
// are of one release. If one of two different versions is of no release, the sentence says that their order is unknown.
func Skew(plugin, operator string) string {
	if plugin == operator {
		return ""
	}
	own, running := released(plugin), released(operator)
	switch {
	case own == nil || running == nil:
		none := plugin
		if own != nil {
			none = operator
		}
		return fmt.Sprintf("whether the plugin %s fits the operator %s is unknown: %s is no version of a release", plugin,
			operator, none)
	case own.LessThan(running):
		return fmt.Sprintf("the plugin %s is older than the operator %s, and computes what its own release does: install "+
			"the plugin %[2]s", plugin, operator)
	case running.LessThan(own):
		return fmt.Sprintf("the plugin %s is newer than the operator %s: kubectl gpu plan shows what the upgrade of the "+
			"operator changes; for anything else install the plugin %[2]s", plugin, operator)
	}
	return ""
}

// released returns the version of a release; nil for any other text.
func released(text string) *version.Version {
	parsed, err := version.ParseSemantic(text)
	if err != nil || !releaseVersion.MatchString(text) {
		return nil
	}
	return parsed
}
