package campaign

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/test/campaign/fault"
)

// rows are all rows of the campaign, in the order of docs/campaign.md.
func rows() []row {
	return slices.Concat(crashRows(), errorRows())
}

func crashRows() []row {
	return []row{
		{id: "A1", what: "SIGKILL at each write of I and G: before it, its answer lost, and after it", sample: 6,
			points: func(ctx context.Context, c *campaign) ([]point, error) {
				return atEachWrite(ctx, c, install, specChange)
			}},
	}
}

// atEachWrite are the points of a crash at each kind of write of the workloads, in three phases.
func atEachWrite(ctx context.Context, c *campaign, workloads ...*workload) ([]point, error) {
	var points []point
	for _, w := range workloads {
		writes, err := c.writesOf(ctx, w)
		if err != nil {
			return nil, err
		}
		requests := slices.SortedFunc(maps.Keys(writes), func(a, b fault.Request) int { return strings.Compare(a.String(), b.String()) })
		for _, request := range requests {
			for nth := range min(writes[request], mostRepeated) {
				for _, phase := range []fault.Phase{fault.Before, fault.After, fault.Done} {
					at := When{Moment: Start, Write: &AtWrite{Match: fault.Exactly(request), Nth: int64(nth + 1), Phase: phase}}
					points = append(points, point{
						name:     fmt.Sprintf("%s/%s_%s_%d", w.id, phase, strings.NewReplacer(" ", "_", "/", "-").Replace(request.String()), nth+1),
						workload: w, faults: []Fault{{When: at, What: Kill}},
					})
				}
			}
		}
	}
	return points, nil
}

// mostRepeated bounds the points of one kind of write: the status is written as often as time allows.
const mostRepeated = 3
