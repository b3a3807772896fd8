package install

import (
	"fmt"
	"os"
	"testing"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

func TestMain(m *testing.M) {
	if err := cluster.SetParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(packaged.RunWithRelease(repo, &chart, pooled{m}))
}

// pooled runs the tests, and stops the clusters that were lent to them.
type pooled struct{ *testing.M }

func (p pooled) Run() int { return clusters.Run(p.M) }
