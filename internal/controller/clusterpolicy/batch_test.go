package clusterpolicy

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// Many nodes make passes rarer, up to a bound that people do not mind.
func TestCrowdBatch(t *testing.T) {
	for nodes, want := range map[int64]time.Duration{
		0: 500 * time.Millisecond, 100: 600 * time.Millisecond, 1000: 1500 * time.Millisecond, 5000: 2 * time.Second,
	} {
		NewWithT(t).Expect(crowdBatch(nodes)).To(Equal(want), "%d nodes", nodes)
	}
}
