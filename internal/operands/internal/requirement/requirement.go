// Package requirement holds the edges of the graph that several operands have.
package requirement

import (
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// AfterToolkit are the edges of an operand whose pods the container runtime gives GPUs: the RuntimeClass
// exists, and the toolkit is proven on the node.
func AfterToolkit() []operand.Requirement {
	return []operand.Requirement{
		{On: "runtime-classes", Scope: operand.Cluster},
		{On: "container-toolkit", Scope: operand.Node, Marker: labels.MarkerToolkit},
	}
}
