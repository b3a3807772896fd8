package campaign

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// Flags, which come after the package: go test ./test/campaign -run TestCampaign -campaign.point=A1/I/before...
var (
	flagPoint    = flag.String("campaign.point", "", "run all points whose names begin so, such as A1 or A1/I/before")
	flagSeed     = flag.Int64("campaign.seed", 1, "choose the sample by this number")
	flagOperator = flag.String("campaign.operator", "", "path of the operator's program; the default is test/operator")
	flagBug      = flag.String("campaign.bug", "", "try this seeded bug alone")
	flagLanes    = flag.Int("campaign.lanes", 3, "how many clusters are in use at once")
	flagRows     = flag.Int("campaign.rows", 10, "how many rows the sample takes points of")
	flagFor      = flag.Duration("campaign.for", 0, "begin no further point after this time")
	flagFrom     = flag.String("campaign.from", "", "results of an earlier operator or campaign (.cache/campaign/*.jsonl), whose passed points count; the report names their commit")
	flagFresh    = flag.Bool("campaign.fresh", false, "run also the points that this operator has passed before")
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	gomega.SetDefaultEventuallyTimeout(eventually)
	if err := cluster.SetParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
