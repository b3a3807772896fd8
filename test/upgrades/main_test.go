package upgrades

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// Flags follow the package: go test ./test/upgrades -run TestCrashes -upgrades.seed=7.
var (
	flagSeed     = flag.Int64("upgrades.seed", 0, "seed of samples (default 1, and random with TEST_FULL=1)")
	flagRounds   = flag.Int("upgrades.rounds", 0, "rounds of TestFastPods (default 3, and 200 with TEST_FULL=1)")
	flagPart     = flag.String("upgrades.part", "1/1", "part of TestForeignWrites, such as 3/40: the third of 40 parts")
	flagLines    = flag.Int("upgrades.lines", 15, "lines of the operator's log that a failed test prints")
	flagOperator = flag.String("upgrades.operator", "", "path of the operator's binary (default test/operator)")
)

// full reports whether the campaigns are to be complete.
func full() bool { return os.Getenv("TEST_FULL") != "" }

// sample returns the source of a sample, and logs its seed. It is the same in each run, but for complete campaigns.
func sample(t *testing.T) *rand.Rand {
	t.Helper()
	seed := cmp.Or(*flagSeed, 1)
	if *flagSeed == 0 && full() {
		seed = rand.Int64()
	}
	t.Logf("the sample is that of -upgrades.seed=%d", seed)
	return rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // a sample, not a secret
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	gomega.SetDefaultEventuallyTimeout(eventually)
	gomega.SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	cluster.Main(clusters.Tests(m))
}
