package clusterpolicy

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/suite"
)

const namespace = cluster.OperatorNamespace

// Shared by all specs: the API server, a client whose calls are not recorded, and the caches.
var (
	config *rest.Config
	scheme = cluster.Scheme()
	admin  client.WithWatch
	// references, images and kindsCache are the caches of Options.References, DriverToolkit and OptionalKinds.
	references, images, kindsCache cache.Cache
	// proxies and versions are the caches of Options.OpenShift.
	proxies, versions cache.Cache
)

func TestClusterPolicy(t *testing.T) {
	suite.Run(t, "ClusterPolicy", func(started *rest.Config) { config = started })
}

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(monitoringv1.AddToScheme(scheme)).To(Succeed())
	var err error
	admin, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	// An API server that has just got a CRD may list its group without the kind.
	Eventually(func() error { return admin.List(ctx, &v1.ClusterPolicyList{}) }).Should(Succeed())

	options := cache.Options{Scheme: scheme, Mapper: mapper()}
	references, err = observe.ReferenceCache(config, namespace, options)
	Expect(err).NotTo(HaveOccurred())
	images, err = observe.DriverToolkitCache(config, options)
	Expect(err).NotTo(HaveOccurred())
	proxies, versions, err = observe.OpenShiftCaches(config, options)
	Expect(err).NotTo(HaveOccurred())
	options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	kindsCache, err = cache.New(config, options)
	Expect(err).NotTo(HaveOccurred())
	running, end := context.WithCancel(context.Background())
	DeferCleanup(end)
	for _, c := range []cache.Cache{references, images, proxies, versions, kindsCache} {
		go func() {
			defer GinkgoRecover()
			Expect(c.Start(running)).To(Succeed())
		}()
	}
})

// mapper returns a RESTMapper that repeats discovery for each kind that it does not have.
func mapper() *restMapper {
	client, err := rest.HTTPClientFor(config)
	Expect(err).NotTo(HaveOccurred())
	dynamic, err := apiutil.NewDynamicRESTMapper(config, client)
	Expect(err).NotTo(HaveOccurred())
	return &restMapper{RESTMapper: dynamic}
}

// Each operation of a pass fails in some spec. If a pass gets a new one, add a spec for it.
var _ = ReportAfterSuite("failed calls", func(report Report) {
	for _, spec := range report.SpecReports {
		if spec.Failed() || spec.State.Is(types.SpecStateSkipped) {
			return
		}
	}
	Expect(failedCalls.missing(allCalls)).To(BeEmpty(), "operations that fail in no spec")
})
