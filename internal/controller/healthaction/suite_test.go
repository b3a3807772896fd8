package healthaction_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// The control plane and what all specs share. It runs no controllers: the fixture plays the node controller.
var (
	cfg       *rest.Config
	stop      func() error
	scheme    *runtime.Scheme
	catalogue operand.Catalogue
)

func TestHealthActionController(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "Health action controller")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(GinkgoLogr)
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyTimeout(30 * time.Second)
	var err error
	catalogue, err = operands.Catalogue()
	Expect(err).NotTo(HaveOccurred())
	scheme = runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	cfg, stop, err = cluster.StartEnvtest(ctx)
	Expect(err).NotTo(HaveOccurred())
})

var _ = AfterSuite(func() {
	if stop != nil {
		Expect(stop()).To(Succeed())
	}
})
