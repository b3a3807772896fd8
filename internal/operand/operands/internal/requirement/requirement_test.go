package requirement_test

import (
	"slices"
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/internal/requirement"
)

func TestAfterToolkit(t *testing.T) {
	want := []operand.Requirement{
		{On: "runtime-classes", Scope: operand.Cluster},
		{On: "container-toolkit", Scope: operand.Node, Marker: "toolkit"},
	}
	if got := requirement.AfterToolkit(); !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
}
