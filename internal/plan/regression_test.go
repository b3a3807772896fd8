package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
)

// The node's verdict says "what runs is left alone"; taking the label away deletes the pod.
func TestARefusalTakesNothingAway(t *testing.T) {
	facts := changed(ubuntu("a"), func(f *operand.NodeFacts) { f.Runtime, f.Pool = "", "ubuntu24.04-amd64" })
	if diff := cmp.Diff(map[string]*string{}, plan.NodeLabels(catalogue(t), facts, labelled(nil), true)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
