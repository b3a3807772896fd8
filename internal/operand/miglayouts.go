package operand

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/text"
)

// maxNames bounds a list of names in a message, in bytes.
const maxNames = 200

// CheckMIGLayout returns why the MIG manager does not know a MIG layout; empty if it does, or if its layouts are not in
// a ConfigMap of the user: then it generates them from what the GPUs of a node support.
func (in Input) CheckMIGLayout(layout string) string {
	config := in.Spec.MIGManager.Config
	if layout == "" || config == nil || config.Name == "" {
		return ""
	}
	reference := Reference{ConfigMap, string(config.Name)}
	content, known := in.Contents[reference]
	if !known || len(content.Layouts) == 0 || slices.Contains(content.Layouts, layout) {
		return ""
	}
	return fmt.Sprintf("MIG layout %s is unknown: %s has only %s", layout, reference,
		text.Truncate(strings.Join(content.Layouts, ", "), maxNames))
}
