package integration

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	gomega.SetDefaultEventuallyTimeout(eventually)
	cluster.Main(clusters.Tests(m))
}
