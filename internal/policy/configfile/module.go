package configfile

import (
	"fmt"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// ModuleParameters returns why the lines of a file with parameters of a kernel module are not what the module gets: a
// sentence for each, at most 4.
// The driver container joins the lines behind "options MODULE" of modprobe's format, which has no comments behind
// parameters.
func ModuleParameters(content string) []string {
	var found []string
	for i, line := range strings.Split(content, "\n") {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || len(found) == maxProblems:
		case fields[0] == "options":
			found = append(found, fmt.Sprintf("line %d: has the form of modprobe.d, which the driver container adds itself: "+
				"write the parameters alone, such as NAME=VALUE", i+1))
		case strings.HasPrefix(fields[0], "#"):
			found = append(found, fmt.Sprintf("line %d: is passed to the module, as the file has no comments: remove it", i+1))
		case len(fields) > 1 && !strings.Contains(line, "="):
			found = append(found, fmt.Sprintf("line %d: %s is no parameter: write NAME=VALUE", i+1,
				text.Truncate(strings.TrimSpace(line), maxValue)))
		}
	}
	return found
}
