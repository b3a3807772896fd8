package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

func TestMain(m *testing.M) {
	if err := cluster.SetParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "gpu-operator-chart-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		chart = filepath.Join(dir, release)
		if err := packaged.ReleaseChart(context.Background(), repo, chart, releaseVersion, releaseImage); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}
