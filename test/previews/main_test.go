package previews

import (
	"flag"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// Flags follow the package: go test ./test/previews -previews.seed=17 -previews.cases=1.
var (
	flagSeed  = flag.Uint64("previews.seed", 0, "seed of the first case; the next ones follow (default by chance)")
	flagNum   = flag.Uint64("previews.cases", casesByDefault(), "number of cases")
	flagLanes = flag.Uint64("previews.lanes", lanesByDefault(), "number of clusters in use simultaneously")
	flagFor   = flag.Duration("previews.for", 0, "start no further case after this time; the next run continues there")
	flagFresh = flag.Bool("previews.fresh", false, "also run cases that have passed before with the same programs")
)

// allCases is the number of cases of make test-full.
const allCases = 500

// eventually is how long the operator may take on a busy machine.
const eventually = time.Minute

// casesByDefault returns the number of cases: all, or a sample of some seconds.
func casesByDefault() uint64 {
	switch {
	case cluster.FullCampaigns():
		return allCases
	case cluster.Sampled():
		return 4
	}
	return 6
}

// lanesByDefault returns the number of clusters: a case mostly waits for what the operator delays.
func lanesByDefault() uint64 {
	if cluster.FullCampaigns() {
		return 3
	}
	return 1
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	gomega.SetDefaultEventuallyTimeout(eventually)
	gomega.SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	cluster.Main(m)
}
