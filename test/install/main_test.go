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
	os.Exit(packaged.RunWithRelease(repo, &chart, clusters.Tests(m)))
}
