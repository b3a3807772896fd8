// Package suite runs the specs of a controller on etcd and an API server, without other controllers.
package suite

import (
	"math"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// patience is the limit of a wait without one: the machine that runs the suite may be slow.
const patience = 30 * time.Second

// Run starts the API server, calls prepare with its configuration, and runs the specs of the package in an order that
// chance selects. The name of the area is the label of all of them. With -short it skips the test.
func Run(t *testing.T, area string, prepare func(*rest.Config)) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	gomega.EnforceDefaultTimeoutsWhenUsingContexts()
	gomega.SetDefaultEventuallyTimeout(patience)
	ctrl.SetLogger(ginkgo.GinkgoLogr)
	config, stop, err := cluster.StartEnvtest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	prepare(config)
	suiteConfig, reporterConfig := ginkgo.GinkgoConfiguration()
	suiteConfig.RandomizeAllSpecs = true
	suiteConfig.RandomSeed = chance.Of(t, area).Int64N(math.MaxInt32)
	ginkgo.RunSpecs(t, area+" controller", ginkgo.Label(area), suiteConfig, reporterConfig)
}
