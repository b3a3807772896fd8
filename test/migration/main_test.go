package migration

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	gomega.SetDefaultEventuallyTimeout(readyTime)
	gomega.SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	cluster.Main(clusters.Tests(m))
}
