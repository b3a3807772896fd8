package campaign

import (
	"flag"
	"testing"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// Flags follow the package: go test ./test/campaign -run TestCampaign -campaign.point=A1/I/before...
var (
	flagPoint    = flag.String("campaign.point", "", "run all points with this prefix, such as A1 or A1/I/before")
	flagOperator = flag.String("campaign.operator", "", "path of the operator's binary (default test/operator)")
	flagBug      = flag.String("campaign.bug", "", "only try this seeded bug")
	flagLanes    = flag.Int("campaign.lanes", 3, "number of clusters in use simultaneously")
	flagRows     = flag.Int("campaign.rows", sampledByDefault(), "number of rows in the sample")
	flagFor      = flag.Duration("campaign.for", 0, "start no further point after this time")
	flagFrom     = flag.String("campaign.from", "", "results of an earlier operator or campaign "+
		"(.cache/campaign/*.jsonl) whose passed points count; the report has their commit")
	flagFresh = flag.Bool("campaign.fresh", false, "also run points that this operator has already passed")
)

// sampleOfCI is the number of rows in the sample of make ci.
const sampleOfCI = 10

// sampledByDefault returns the number of rows in the sample.
func sampledByDefault() int {
	if cluster.Sampled() {
		return 4
	}
	return sampleOfCI
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	gomega.SetDefaultEventuallyTimeout(eventually)
	cluster.Main(m)
}
