package dropin

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// chart is the folder of a released chart.
var chart string

// eventually is how long what happens by itself may take on a busy machine.
const eventually = 30 * time.Second

func TestMain(m *testing.M) {
	gomega.SetDefaultEventuallyTimeout(eventually)
	if err := cluster.SetParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := packaged.RunWithRelease(repo, &chart, m)
	if err := total.print(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
