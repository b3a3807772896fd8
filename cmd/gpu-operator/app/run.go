package app

import (
	"context"
	"fmt"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/config/crd"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/controller/clusterpolicy"
	"github.com/clusterpolicy/gpu-operator/internal/controller/healthaction"
	"github.com/clusterpolicy/gpu-operator/internal/controller/neighbours"
	"github.com/clusterpolicy/gpu-operator/internal/controller/node"
	"github.com/clusterpolicy/gpu-operator/internal/controller/upgrade"
	"github.com/clusterpolicy/gpu-operator/internal/kube/events"
	"github.com/clusterpolicy/gpu-operator/internal/kube/leadership"
	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/internal/status/metrics"
	"github.com/clusterpolicy/gpu-operator/internal/status/statuswriter"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/otheroperator"
)

type options struct {
	metrics          metricsOptions
	election         electionOptions
	log              logOptions
	healthAddress    string
	takeOver         bool
	kubeconfig       string
	namespace, image string
	proxy            v1.ProxySpec
	timing           Timing
}

// run starts the manager and returns when it stops.
func run(ctx context.Context, o options) error {
	ctrl.SetLogger(o.log.logger())
	limitResources(ctx, memlimit.FromCgroup)
	if err := checkNamespace(o.namespace); err != nil {
		return err
	}
	if o.image == "" {
		return fmt.Errorf("%s is not set: set it to the image of the operator, which operands use too", envImage)
	}
	if err := o.metrics.check(); err != nil {
		return err
	}
	if err := o.election.complete(o.namespace); err != nil {
		return err
	}
	config, err := restConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	meter := metrics.New(clock.RealClock{})
	config.Wrap(meter.CountWrites)
	if o.election.enabled {
		config.Wrap(leadership.New(o.election.lease(), o.election.renewDeadline, clock.RealClock{}, ctrl.Log).Wrap)
	}
	of := state{fleet: fleet.New(), pods: &observe.PodIndex{}, meter: meter}
	mgr, err := newManager(config, of, o)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	if err := checkCluster(ctx, mgr, o.namespace); err != nil {
		return err
	}
	if err := ctrlmetrics.Registry.Register(meter); err != nil {
		return fmt.Errorf("registering the metrics: %w", err)
	}
	if err := o.metrics.addServer(ctx, mgr); err != nil {
		return err
	}
	if err := addControllers(ctx, mgr, of, o); err != nil {
		return err
	}
	ctrl.Log.Info("Starting", "version", version.Version, "namespace", o.namespace)
	return mgr.Start(ctx)
}

// state is what the caches and the controllers have in common.
type state struct {
	fleet *fleet.Fleet
	pods  *observe.PodIndex
	meter *metrics.Meter
}

func newManager(config *rest.Config, of state, o options) (manager.Manager, error) {
	scheme := k8sruntime.NewScheme()
	err := utilerrors.NewAggregate([]error{
		corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), nodev1.AddToScheme(scheme), schedulingv1.AddToScheme(scheme),
		admissionv1.AddToScheme(scheme), v1.AddToScheme(scheme), policyv1.AddToScheme(scheme),
		monitoringv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
	})
	if err != nil {
		return nil, err
	}
	options := ctrl.Options{
		Scheme:                 scheme,
		MapperProvider:         newMapper,
		Cache:                  cacheOptions(o.namespace, of),
		Metrics:                metricsserver.Options{BindAddress: "0"}, // See addServer.
		HealthProbeBindAddress: "0",                                     // See addProbes.
	}
	o.election.configure(&options)
	return ctrl.NewManager(config, options)
}

// checkCluster fails on a cluster in which the manager would wait for ever.
func checkCluster(ctx context.Context, mgr manager.Manager, namespace string) error {
	if err := checkAPI(mgr.GetRESTMapper()); err != nil {
		return err
	}
	return checkNamespaceExists(ctx, mgr.GetAPIReader(), namespace)
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
	live, err := client.NewWithWatch(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the watch for NVIDIA's operator: %w", err)
	}
	authorization, err := authorizationclient.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("preparing the review of what pods may do: %w", err)
	}
	other := otheroperator.New(otheroperator.Options{
		Live: live, Watch: live.Watch, Reviews: authorization.SubjectAccessReviews(), Clock: clock.RealClock{},
		Namespace: o.namespace, OwnVariable: envImage, Timing: o.timing.Other,
	})
	return other, mgr.Add(other)
}

// caches are those beside the manager's.
type caches struct {
	// toolkitImages is that of the driver toolkit, which is in a namespace of OpenShift.
	toolkitImages cache.Cache
	// proxies and versions have one object of OpenShift's configuration each.
	proxies, versions cache.Cache
	// references is that of the ConfigMaps and Secrets that the spec refers to.
	references cache.Cache
}

// ownCaches returns the caches beside the manager's.
func ownCaches(mgr manager.Manager, namespace string) (own caches, err error) {
	shared := cache.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()}
	if own.toolkitImages, err = observe.DriverToolkitCache(mgr.GetConfig(), shared); err != nil {
		return own, fmt.Errorf("setting up the watch of the driver toolkit: %w", err)
	}
	if own.proxies, own.versions, err = observe.OpenShiftCaches(mgr.GetConfig(), shared); err != nil {
		return own, fmt.Errorf("setting up the watches of OpenShift's configuration: %w", err)
	}
	if own.references, err = observe.ReferenceCache(mgr.GetConfig(), namespace, shared); err != nil {
		return own, fmt.Errorf("setting up the watch of referenced ConfigMaps and Secrets: %w", err)
	}
	return own, nil
}

// addWatches adds the watches that passes start to the manager, with their caches.
func (own caches) addWatches(mgr manager.Manager, toolkit *observe.DriverToolkit, openShift *observe.OpenShift) error {
	watches := []manager.Runnable{own.toolkitImages, own.proxies, own.versions, own.references, toolkit}
	for _, watch := range openShift.Watches() {
		watches = append(watches, watch)
	}
	return addAll(mgr, watches...)
}

// addControllers adds all controllers to the manager.
func addControllers(ctx context.Context, mgr manager.Manager, of state, o options) error {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return err
	}
	overrides, ignored := overriddenImages(catalogue, ctrl.Log, os.Getenv)
	own, err := ownCaches(mgr, o.namespace)
	if err != nil {
		return err
	}
	c, now, known, meter := of.pods.Client(mgr.GetClient()), clock.RealClock{}, of.fleet, of.meter
	recorder := events.NewRecorder(c, now, meter.CountDroppedEvent)
	toolkit := observe.NewDriverToolkit(own.toolkitImages, mgr.GetRESTMapper(), now)
	openShift := observe.NewOpenShift(own.proxies, own.versions, mgr.GetRESTMapper(), now)
	other, err := addOtherOperator(mgr, o)
	if err != nil {
		return err
	}
	driverStatus := statuswriter.NewDriverWriter(c, now, o.timing.Status)
	drivers := observe.NewNVIDIADrivers(mgr.GetCache(), mgr.GetRESTMapper(), now, driverStatus.Wrote)
	kinds := clusterpolicy.NewOptionalKinds(mgr.GetCache(), mgr.GetRESTMapper(), now)
	return utilerrors.NewAggregate([]error{
		clusterpolicy.New(clusterpolicy.Options{
			Client: c, Live: mgr.GetAPIReader(),
			Applier: apply.New(c, mgr.GetAPIReader(), now, o.timing.Apply),
			Status:  statuswriter.New(c, now, recorder, catalogue, o.timing.Status),
			Fleet:   known, Catalogue: catalogue,
			Namespace: o.namespace, OperatorImage: o.image, Images: overrides, Ignored: ignored, Proxy: o.proxy,
			Metrics:        o.metrics.endpoint(),
			CreateFailures: observe.NewCreateFailures(mgr.GetAPIReader(), o.namespace, now),
			StartFailures:  observe.NewStartFailures(mgr.GetAPIReader(), o.namespace, now),
			Schema:         &observe.Schema{Definition: crd.OfClusterPolicy(), Cached: c, Live: mgr.GetAPIReader()},
			DriverSchema:   &observe.Schema{Definition: crd.OfNVIDIADriver(), Cached: c, Live: mgr.GetAPIReader()},
			ServerVersion:  serverVersion(mgr.GetConfig(), mgr.GetHTTPClient(), now, ctrl.Log),
			DriverToolkit:  toolkit, OpenShift: openShift, References: own.references, OptionalKinds: kinds,
			NVIDIADrivers: drivers, DriverStatus: driverStatus, OtherOperator: other,
			Meter: meter, Clock: now, Timing: o.timing.Policy,
		}).SetupWithManager(mgr),
		addNodes(ctx, mgr, node.Options{
			Client: c, Live: mgr.GetAPIReader(), Catalogue: catalogue, Namespace: o.namespace,
			Fleet: known, Events: recorder, Meter: meter, Clock: now, Timing: o.timing.Node,
		}),
		upgrade.New(upgrade.Options{
			Client: c, Live: mgr.GetAPIReader(), Catalogue: catalogue, Namespace: o.namespace,
			Fleet: known, Events: recorder, Clock: now, Timing: o.timing.Upgrade,
		}).SetupWithManager(mgr),
		healthaction.New(healthaction.Options{Client: c, Fleet: known, Clock: now, Timing: o.timing.Health}).
			SetupWithManager(mgr),
		own.addWatches(mgr, toolkit, openShift),
		addAll(mgr, kinds, drivers, neighbours.New(neighbours.Options{
			Live: mgr.GetAPIReader(), Fleet: known, Namespace: o.namespace, Clock: now, Timing: o.timing.Neighbours,
		})),
		addProbes(ctx, mgr, o.healthAddress),
	})
}

// addNodes adds the controller of nodes, with a reader of logs.
func addNodes(ctx context.Context, mgr manager.Manager, options node.Options) error {
	logs, err := observe.NewPodLogs(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	options.Logs = logs
	return node.New(options).SetupWithManager(ctx, mgr)
}

// addAll adds the runnables to the manager.
func addAll(mgr manager.Manager, runnables ...manager.Runnable) error {
	for _, runnable := range runnables {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("adding %T: %w", runnable, err)
		}
	}
	return nil
}
