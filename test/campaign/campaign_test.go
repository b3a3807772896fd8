package campaign

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestCampaign runs the points of all rows: a sample that a number chooses, or with TEST_FULL=1 every one.
func TestCampaign(t *testing.T) {
	g := NewWithT(t)
	_, err := cluster.EnsureBinaries(t.Context(), "", os.Stderr)
	g.Expect(err).NotTo(HaveOccurred())
	binary, err := program(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	c := newCampaign(binary, *flagLanes)
	t.Cleanup(func() { g.Expect(c.close()).To(Succeed()) })
	number := seed()
	t.Logf("seed %d", number)
	t.Run("points", func(t *testing.T) {
		for _, r := range sampledRows(number) {
			points, err := r.points(t.Context(), c)
			g.Expect(err).NotTo(HaveOccurred())
			chosen := sampled(r, points, number)
			if *flagPoint != "" {
				chosen = points
			}
			for _, p := range chosen {
				name := r.id + "/" + p.name
				if !strings.HasPrefix(name, *flagPoint) {
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					c.judge(t, name, p)
				})
			}
		}
	})
}

// isAsked reports whether a row may have a point that is asked for.
func isAsked(r row) bool {
	return strings.HasPrefix(*flagPoint, r.id+"/") || strings.HasPrefix(r.id, *flagPoint)
}

func (c *campaign) judge(t *testing.T, name string, p point) {
	t.Helper()
	out, err := c.run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if out.missed {
		t.Skip("the run made no such call")
	}
	for _, violation := range out.violations {
		t.Error(violation)
	}
	if t.Failed() {
		t.Logf("again: go test ./test/campaign -run TestCampaign -count=1 -v -campaign.point=%s\n%s", name, out.logs)
		return
	}
	t.Logf("recovered in %.1f s", out.recovery)
}
