package upgrades

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// Flags follow the package: go test ./test/upgrades -run TestFastPods -upgrades.rounds=7.
var (
	flagRounds   = flag.Int("upgrades.rounds", 0, "rounds of TestFastPods (default 3, and 200 with TEST_FULL=1)")
	flagPart     = flag.String("upgrades.part", "1/1", "part of TestForeignWrites, such as 3/40: the third of 40 parts")
	flagLines    = flag.Int("upgrades.lines", 15, "lines of the operator's log that a failed test prints")
	flagOperator = flag.String("upgrades.operator", "", "path of the operator's binary (default test/operator)")
)

// full reports whether the campaigns are to be complete.
func full() bool { return os.Getenv("TEST_FULL") != "" }

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	gomega.SetDefaultEventuallyTimeout(eventually)
	gomega.SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	cluster.Main(clusters.Tests(m))
}
