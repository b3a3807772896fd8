package campaign

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestCampaign runs the points of all rows: a sample selected by the seed, or with TEST_FULL=1 every point that has
// not passed before.
func TestCampaign(t *testing.T) {
	g := NewWithT(t)
	_, err := cluster.EnsureBinaries(t.Context(), "", os.Stderr)
	g.Expect(err).NotTo(HaveOccurred())
	binary, err := program(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	known, err := openResults(binary)
	g.Expect(err).NotTo(HaveOccurred())
	c := newCampaign(binary, *flagLanes)
	t.Cleanup(func() { g.Expect(c.close()).To(Succeed()) })
	if *flagPoint == "" {
		c.warm(t)
	}
	begin := time.Now()
	all, total, tried := map[string][]point{}, 0, 0
	t.Run("points", func(t *testing.T) {
		for _, r := range sampledRows(t) {
			points, err := r.points(t.Context(), c)
			g.Expect(err).NotTo(HaveOccurred())
			all[r.id] = points
			total += len(points)
			selected, others := chosen(t, r, points)
			tried += len(selected)
			for _, p := range selected {
				name := r.id + "/" + p.name
				if whole() && !*flagFresh && known.hasPassed(name) {
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					if *flagFor > 0 && time.Since(begin) > *flagFor {
						t.Skip("the time is over; the next run continues here")
					}
					g.Expect(c.judgeUntilStruck(t, r, p, others, known)).To(Succeed())
				})
			}
		}
	})
	t.Logf("%d rows have %d points in all", len(all), total)
	g.Expect(tried).To(BeNumerically(">", 0), "no point is selected")
	if whole() {
		for id, points := range all {
			sum := known.tally(id, points)
			g.Expect(sum.missed < sum.total || sum.total == 0).To(BeTrue(), "no fault of row %s had a target", id)
		}
		g.Expect(known.writeReport(all, operatorName())).To(Succeed())
	}
}

// warm does the undisturbed runs in parallel, from which most rows derive their points. An error is reported where a
// run is needed.
func (c *campaign) warm(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for _, w := range []*workload{install, specChange, rest, disable, remove} {
		r := c.referenceOf(t.Context(), w)
		all.Go(func() { _, _ = r.first() })
	}
	all.Wait()
}

// whole reports whether every point runs.
func whole() bool { return cluster.FullCampaigns() && *flagPoint == "" }

func operatorName() string {
	if *flagOperator != "" {
		return *flagOperator
	}
	return "test/operator"
}

// isSelected reports whether a row may have a point selected by the flag.
func isSelected(r row) bool {
	return strings.HasPrefix(*flagPoint, r.id+"/") || strings.HasPrefix(r.id, *flagPoint)
}

// judgeUntilStruck runs a point, and if its fault has no target, another one of the row, until one strikes. In a whole
// campaign, which has them all, those without a target are counted instead.
func (c *campaign) judgeUntilStruck(t *testing.T, r row, p point, others *spare, known results) error {
	t.Helper()
	for {
		result := c.judge(t, r.id+"/"+p.name, p)
		if err := known.add(result); err != nil || result.Verdict != missed || whole() {
			return err
		}
		next, is := others.next()
		if !is {
			t.Errorf("nothing was tried: the fault had no target, and row %s has no further points", r.id)
			return nil
		}
		p = next
	}
}

// judge runs a point, and fails the test for each violation.
func (c *campaign) judge(t *testing.T, name string, p point) kept {
	t.Helper()
	out, err := c.run(t.Context(), p)
	switch {
	case err != nil:
		t.Error(err)
		return kept{Point: name, Verdict: failed, Detail: fmt.Sprintf("%.300s", err.Error())}
	case len(out.violations) > 0:
		for _, violation := range out.violations {
			t.Error(violation)
		}
		t.Logf("to repeat: go test ./test/campaign -run TestCampaign -count=1 -v -campaign.point=%s\n%s", name, out.logs)
		return kept{Point: name, Verdict: failed, Detail: fmt.Sprintf("%.300s", out.violations[0])}
	case out.missed:
		t.Logf("%s: the run made no such request, so that the fault had no target", name)
		return kept{Point: name, Verdict: missed}
	}
	t.Logf("recovered in %.1f s", out.recovery)
	return kept{Point: name, Verdict: passed, Recovery: out.recovery}
}
