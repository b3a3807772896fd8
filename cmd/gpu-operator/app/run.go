package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/apply"
	"github.com/clusterpolicy/gpu-operator/internal/cachefilter"
	"github.com/clusterpolicy/gpu-operator/internal/controller/clusterpolicy"
	"github.com/clusterpolicy/gpu-operator/internal/controller/node"
	"github.com/clusterpolicy/gpu-operator/internal/events"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/leadership"
	"github.com/clusterpolicy/gpu-operator/internal/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operands"
	"github.com/clusterpolicy/gpu-operator/internal/otheroperator"
	"github.com/clusterpolicy/gpu-operator/internal/statuswriter"
	"github.com/clusterpolicy/gpu-operator/internal/version"
)

// leaseName is also that of NVIDIA's operator, so that only one of the two is active in a namespace.
const leaseName = "53822513.nvidia.com"

// A lease is valid for leaseDuration after it was renewed. A leader that has not renewed it for renewDeadline exits,
// and writes nothing from then on.
const leaseDuration, renewDeadline = 15 * time.Second, 10 * time.Second

// Leader election needs its lease, and records a change of leader in an Event, which the rights of package events
// cover. No such Event repeats for the same leader, so none is ever aggregated.
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=gpu-operator,resources=leases,verbs=get;create;update

type options struct {
	metrics            metricsOptions
	healthAddress      string
	leaderElect, debug bool
	takeOver           bool
	kubeconfig         string
	namespace, image   string
	proxy              v1.ProxySpec
	timing             Timing
}

// run starts the manager and returns when it stops.
func run(ctx context.Context, o options) error {
	limitResources()
	ctrl.SetLogger(logger(o.debug))
	if o.namespace == "" {
		return fmt.Errorf("%s is not set: set it to the namespace of the operator and its operands", envNamespace)
	}
	if o.image == "" {
		return fmt.Errorf("%s is not set: set it to the image of the operator, which operands use too", envImage)
	}
	if err := o.metrics.check(); err != nil {
		return err
	}
	config, err := restConfig(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("finding the cluster: %w: set --kubeconfig or KUBECONFIG, or run in a pod", err)
	}
	meter := metrics.New(clock.RealClock{})
	config.Wrap(meter.CountWrites)
	if o.leaderElect {
		config.Wrap(leadership.New(types.NamespacedName{Namespace: o.namespace, Name: leaseName}, renewDeadline,
			clock.RealClock{}, ctrl.Log).Wrap)
	}
	mgr, err := newManager(config, o)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	if err := checkAPI(mgr.GetRESTMapper()); err != nil {
		return err
	}
	if err := ctrlmetrics.Registry.Register(meter); err != nil {
		return fmt.Errorf("registering the metrics: %w", err)
	}
	if err := addControllers(ctx, mgr, meter, o); err != nil {
		return err
	}
	logServerVersion(config, mgr.GetHTTPClient(), ctrl.Log)
	ctrl.Log.Info("Starting", "version", version.Version, "namespace", o.namespace)
	return mgr.Start(ctx)
}

// gcPercent is how much the heap may grow before a collection, in percent of the live heap; Go's default is 100.
const gcPercent = 60

// limitResources sets GOMAXPROCS to 1 and GOGC to gcPercent, unless the environment sets them. The work fits in one
// core; with all cores of a node the garbage collector would use idle ones. At 1,000 nodes the heap is most of the
// memory.
func limitResources() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// logger writes JSON lines. Only panics get stack traces: an error is enough for a failed call.
func logger(debug bool) logr.Logger {
	level := zapcore.InfoLevel
	if debug {
		level = zapcore.DebugLevel
	}
	return zap.New(zap.Level(level), zap.StacktraceLevel(zapcore.PanicLevel),
		zap.RawZapOpts(uberzap.WrapCore(func(core zapcore.Core) zapcore.Core {
			return lazy{core}
		})))
}

// lazy encodes a logger's values only when something is logged: controller-runtime creates a logger with values for
// each reconcile, and most reconciles log nothing.
type lazy struct{ zapcore.Core }

// With implements zapcore.Core.
func (l lazy) With(fields []zapcore.Field) zapcore.Core {
	return lazy{zapcore.NewLazyWith(l.Core, fields)}
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	// API Priority and Fairness limits the operator on the server; a client-side limit would only delay a thousand
	// nodes.
	config.QPS = -1
	config.UserAgent = "gpu-operator/" + version.Version
	return config, nil
}

func newManager(config *rest.Config, o options) (manager.Manager, error) {
	scheme := k8sruntime.NewScheme()
	err := utilerrors.NewAggregate([]error{
		corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), nodev1.AddToScheme(scheme), schedulingv1.AddToScheme(scheme),
		admissionv1.AddToScheme(scheme), v1.AddToScheme(scheme),
		monitoringv1.AddToScheme(scheme),
	})
	if err != nil {
		return nil, err
	}
	return ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		MapperProvider:                newMapper,
		Cache:                         cacheOptions(o.namespace),
		Metrics:                       o.metrics.server(),
		HealthProbeBindAddress:        o.healthAddress,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration),
		RenewDeadline:                 new(renewDeadline),
	})
}

// cacheOptions keeps the caches small: only the operator's objects, only in its namespace, only the fields that are
// read.
func cacheOptions(namespace string) cache.Options {
	managed := k8slabels.SelectorFromSet(k8slabels.Set{labels.ManagedBy: labels.ManagedByValue})
	return cache.Options{
		DefaultTransform:  cache.TransformStripManagedFields(),
		DefaultNamespaces: map[string]cache.Config{namespace: {LabelSelector: managed}},
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:         {Transform: cachefilter.TrimNode},
			&corev1.Pod{}:          {Transform: cachefilter.NewPodTrimmer().Pod},
			&nodev1.RuntimeClass{}: {Label: managed},
			observe.CRDMetadata():  {Transform: cachefilter.TrimCRD},
		},
	}
}

// checkAPI fails on a cluster without the CRD ClusterPolicy, where the manager would silently wait for its cache.
func checkAPI(mapper meta.RESTMapper) error {
	_, err := mapper.RESTMapping(v1.ClusterPolicyKind.GroupKind(), v1.ClusterPolicyKind.Version)
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("the cluster has no kind ClusterPolicy in %s: install the CRD first (config/crd, or make install)",
			v1.GroupVersion)
	}
	if err != nil {
		return fmt.Errorf("discovering kind ClusterPolicy: %w", err)
	}
	return nil
}

// addOtherOperator adds to the manager what detects NVIDIA's operator, and returns it; nil with --take-over.
func addOtherOperator(mgr manager.Manager, o options) (*otheroperator.Watcher, error) {
	if o.takeOver {
		return nil, nil
	}
	other := otheroperator.New(otheroperator.Options{
		Live: mgr.GetAPIReader(), Clock: clock.RealClock{}, Namespace: o.namespace, OwnVariable: envImage,
		Timing: o.timing.Other,
	})
	return other, mgr.Add(other)
}

// addControllers adds all controllers to the manager.
func addControllers(ctx context.Context, mgr manager.Manager, meter *metrics.Meter, o options) error {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return fmt.Errorf("the catalogue of operands is invalid, which is a bug in the operator: %w", err)
	}
	shared := cache.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()}
	images, err := observe.DriverToolkitCache(mgr.GetConfig(), shared)
	if err != nil {
		return fmt.Errorf("setting up the watch of the driver toolkit: %w", err)
	}
	references, err := observe.ReferenceCache(mgr.GetConfig(), o.namespace, shared)
	if err != nil {
		return fmt.Errorf("setting up the watch of referenced ConfigMaps and Secrets: %w", err)
	}
	c, now := mgr.GetClient(), clock.RealClock{}
	known, recorder := fleet.New(), events.NewRecorder(c, now, meter.CountDroppedEvent)
	toolkit := observe.NewDriverToolkit(images, mgr.GetRESTMapper(), now)
	other, err := addOtherOperator(mgr, o)
	if err != nil {
		return err
	}
	kinds := clusterpolicy.NewOptionalKinds(mgr.GetCache(), mgr.GetRESTMapper(), now)
	return utilerrors.NewAggregate([]error{
		clusterpolicy.New(clusterpolicy.Options{
			Client:         c,
			Live:           mgr.GetAPIReader(),
			Applier:        apply.New(c, mgr.GetAPIReader(), now, o.timing.Apply),
			Status:         statuswriter.New(c, now, recorder, catalogue, o.timing.Status),
			Fleet:          known,
			Catalogue:      catalogue,
			Namespace:      o.namespace,
			OperatorImage:  o.image,
			Proxy:          o.proxy,
			Metrics:        o.metrics.endpoint(),
			DriverToolkit:  toolkit,
			CreateFailures: observe.NewCreateFailures(mgr.GetAPIReader(), o.namespace, now),
			References:     references,
			Schema:         &observe.Schema{Cached: c, Live: mgr.GetAPIReader()},
			OptionalKinds:  kinds,
			OtherOperator:  other,
			Meter:          meter,
			Clock:          now,
			Timing:         o.timing.Policy,
		}).SetupWithManager(mgr),
		node.New(node.Options{
			Client: c, Live: mgr.GetAPIReader(), Catalogue: catalogue, Namespace: o.namespace,
			Fleet: known, Events: recorder, Meter: meter, Clock: now, Timing: o.timing.Node,
		}).SetupWithManager(ctx, mgr),
		mgr.Add(images),
		mgr.Add(references),
		mgr.Add(toolkit),
		mgr.Add(kinds),
		mgr.AddHealthzCheck("ping", func(*http.Request) error { return nil }),
		mgr.AddReadyzCheck("caches", cachesSynced(mgr)),
	})
}

// cachesSynced fails until the caches of the manager are synced.
func cachesSynced(mgr manager.Manager) func(*http.Request) error {
	return func(req *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(req.Context()) {
			return errors.New("the caches are not synced yet")
		}
		return nil
	}
}
