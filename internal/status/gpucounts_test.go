package status

import (
	"math"
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
)

// The sum of the GPUs of all nodes stays a number of the status, whatever the nodes claim.
func TestSumOfGPUsIsBounded(t *testing.T) {
	most := readiness.GPUs{Total: math.MaxInt32, Usable: math.MaxInt32 - 1}
	assessment := &assess.Assessment{GPUs: most}
	summary := summarise([]node{{Assessment: assessment}, {Assessment: assessment}, {Assessment: assessment}})
	if summary.GPUs.Total != math.MaxInt32 || summary.GPUs.Usable != math.MaxInt32 {
		t.Errorf("%d of %d GPUs", summary.GPUs.Usable, summary.GPUs.Total)
	}
}
