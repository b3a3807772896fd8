package operand

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// maxNames bounds a list of names in a message, in bytes.
const maxNames = 200

// CheckMIGLayout returns why the MIG manager does not know a MIG layout; empty if it does, or if its layouts are not in
// a ConfigMap of the user: then it generates them from what the GPUs of a node support.
func (in Input) CheckMIGLayout(layout string) string {
	if layout == "" || !in.hasOwnMIGLayouts() {
		return ""
	}
	reference := Reference{ConfigMap, string(in.Spec.MIGManager.Config.Name)}
	content, known := in.Contents[reference]
	if !known || len(content.Layouts) == 0 || slices.Contains(content.Layouts, layout) {
		return ""
	}
	return fmt.Sprintf("MIG layout %s is unknown: %s has only %s", layout, reference,
		text.Truncate(strings.Join(content.Layouts, ", "), maxNames))
}

// hasOwnMIGLayouts reports whether the MIG layouts are those of a user's ConfigMap.
func (in Input) hasOwnMIGLayouts() bool {
	config := in.Spec.MIGManager.Config
	return config != nil && config.Name != "" && config.Name != effective.MIGLayouts
}
