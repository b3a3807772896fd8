package pluginfile

import "strings"

// CannotRelink reports whether this is the error of config-manager that cannot replace its link to a configuration,
// because that is gone from the ConfigMap.
func CannotRelink(line string) bool {
	return strings.Contains(line, "error creating symlink") && strings.Contains(line, "file exists")
}
