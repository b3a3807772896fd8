// Package requirement has the requirements that several operands share.
package requirement

import (
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// AfterToolkit returns the requirements of an operand into whose pods the container runtime injects GPUs: the
// RuntimeClass exists, and the toolkit is validated on the node.
func AfterToolkit() []operand.Requirement {
	return []operand.Requirement{
		{On: "runtime-classes", Scope: operand.Cluster},
		{On: "container-toolkit", Scope: operand.Node, Marker: labels.MarkerToolkit},
	}
}
