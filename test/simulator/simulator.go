package simulator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/clusterpolicy/gpu-operator/test/simulator/host"
)

const (
	defaultWorkers = 16
	byNode         = "node"
)

// Options configures a simulator.
type Options struct {
	// Config is the client configuration. It should have no rate limit.
	Config *rest.Config
	// Timing defaults to DefaultTiming.
	Timing *Timing
	// Seed is the random seed for the variation of durations.
	Seed int64
	// Workers is how many nodes are processed concurrently; the default is 16.
	Workers int
	// Modules makes nodes without processes remember the loaded driver, and play k8s-driver-manager: it restarts the
	// operands beside a loaded driver. An equal driver is kept, and another one is replaced only once nothing uses the
	// GPUs.
	Modules bool
	// Address, if not empty, is one of this computer at which the API server gets the logs of containers and the metrics
	// of DCGM exporters, see ReachableAddress. It is the address of all nodes then. Port 9400 must be free.
	Address string
	// Programs let nodes run processes, see NodeSpec.Processes; without them no node does.
	Programs host.Programs
	// Dir is the directory for the machines of such nodes, which is kept. The default is a temporary directory that is
	// removed with the simulator.
	Dir string
}

// Simulator simulates all nodes with the label type=kwok.
type Simulator struct {
	client  kubernetes.Interface
	timing  Timing
	dice    dice
	workers int
	kubelet string
	faults  faults
	queue   workqueue.TypedRateLimitingInterface[string]
	// endpoints serve logs and metrics.
	endpoints endpoints
	// serial numbers the nodes that were added, addresses the pods.
	serial, addresses atomic.Int64

	// modules: nodes without processes play k8s-driver-manager.
	modules bool
	// programs are the executables for nodes that run processes; noProcesses is why none can.
	programs    host.Programs
	noProcesses error
	// server is the API server's address for pods.
	server string
	// dir has the machines of the nodes, and is removed at the end if it is temporary.
	dir       string
	temporary bool
	// cancel ends the simulator; ended is closed once everything is removed.
	cancel context.CancelFunc
	ended  chan struct{}

	nodeInformer, podInformer cache.SharedIndexInformer
	nodeLister                corelisters.NodeLister

	lock  sync.Mutex
	nodes map[string]*node
}

// New returns a simulator for a running API server. Call Start to run it.
func New(opts Options) (*Simulator, error) {
	cfg := rest.CopyConfig(opts.Config)
	// Protobuf halves the cost of watching a thousand nodes.
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("read the server's version: %w", err)
	}
	s := &Simulator{
		client: client, timing: DefaultTiming(), workers: defaultWorkers, modules: opts.Modules,
		kubelet: version.GitVersion, nodes: map[string]*node{},
		// After an outage of the API server a node must not back off for minutes.
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 2*time.Second)),
	}
	if opts.Timing != nil {
		s.timing = *opts.Timing
	}
	if opts.Workers > 0 {
		s.workers = opts.Workers
	}
	s.dice = dice{seed: opts.Seed, jitter: s.timing.Jitter}
	s.prepareProcesses(opts)
	if err := s.prepareInformers(); err != nil {
		return nil, err
	}
	return s, s.serve(opts.Address)
}

// prepareProcesses checks whether nodes can run processes.
func (s *Simulator) prepareProcesses(opts Options) {
	s.programs, s.server, s.dir = opts.Programs, opts.Config.Host, opts.Dir
	if s.programs.GPUNode == "" || s.programs.StandIn == "" {
		s.noProcesses = errors.New("Options.Programs is not set")
		return
	}
	s.noProcesses = host.Check(s.programs)
}

func (s *Simulator) prepareInformers() error {
	nodes := informers.NewSharedInformerFactoryWithOptions(s.client, 0,
		informers.WithTransform(trim),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = simulatedLabel + "=" + simulatedValue
		}))
	pods := informers.NewSharedInformerFactoryWithOptions(s.client, 0,
		informers.WithTransform(trim),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "spec.nodeName!=" }))
	s.nodeInformer, s.podInformer = nodes.Core().V1().Nodes().Informer(), pods.Core().V1().Pods().Informer()
	s.nodeLister = nodes.Core().V1().Nodes().Lister()
	if err := s.podInformer.AddIndexers(cache.Indexers{byNode: indexByNode}); err != nil {
		return fmt.Errorf("index pods by node: %w", err)
	}
	_, nodesErr := s.nodeInformer.AddEventHandler(s.enqueuer())
	_, podsErr := s.podInformer.AddEventHandler(s.enqueuer())
	if err := errors.Join(nodesErr, podsErr); err != nil {
		return fmt.Errorf("watch nodes and pods: %w", err)
	}
	return nil
}

// nodeOf returns the name of the node that an object is or belongs to.
func nodeOf(object any) string {
	switch object := object.(type) {
	case *corev1.Node:
		return object.Name
	case *corev1.Pod:
		return object.Spec.NodeName
	case cache.DeletedFinalStateUnknown:
		return nodeOf(object.Obj)
	default:
		return ""
	}
}

func indexByNode(object any) ([]string, error) { return []string{nodeOf(object)}, nil }

// trim drops fields that are never read.
func trim(object any) (any, error) {
	if accessor, ok := object.(metav1.Object); ok {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// enqueuer enqueues the node that an object belongs to, also for updates caused by the simulator's own writes:
// processing a node is cheap, and writes nothing without a change.
func (s *Simulator) enqueuer() cache.ResourceEventHandlerFuncs {
	add := func(object any) { s.queue.Add(nodeOf(object)) }
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, object any) { add(object) },
		DeleteFunc: add,
	}
}

func (s *Simulator) work(ctx context.Context) {
	for {
		name, shutdown := s.queue.Get()
		if shutdown {
			return
		}
		if err := s.process(ctx, name); err != nil {
			// On a conflict there is another pod with this name, or there are too many writers at the moment.
			if ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				utilruntime.HandleError(err)
			}
			s.queue.AddRateLimited(name)
		} else {
			s.queue.Forget(name)
		}
		s.queue.Done(name)
	}
}

// process advances one node and writes what changed.
func (s *Simulator) process(ctx context.Context, name string) error {
	object, err := s.nodeLister.Get(name)
	if apierrors.IsNotFound(err) {
		s.forget(name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up node %s: %w", name, err)
	}
	if operand := object.Annotations[RepairAnnotation]; operand != "" {
		s.faults.clear(place{operand, name})
	}
	pods, err := s.podsOn(name)
	if err != nil {
		return err
	}
	n, err := s.nodeFor(object)
	if err != nil {
		return err
	}
	now := time.Now()
	if err := n.observe(now, pods); err != nil {
		return err
	}
	n.noticeReboot(now)
	if err := errors.Join(n.logXid(), n.configure(ctx)); err != nil {
		return err
	}
	if err := n.settle(ctx, now); err != nil {
		return err
	}
	if next := n.next(); !next.IsZero() {
		s.queue.AddAfter(name, time.Until(next))
	}
	return nil
}

// settle advances the node until nothing is left to do now, and writes what changed.
func (n *node) settle(ctx context.Context, now time.Time) (err error) {
	for again := true; again; {
		n.advance(ctx, now)
		if err := n.syncDriver(); err != nil {
			return err
		}
		// A validation may wait for a changed number of allocatable GPUs.
		again, err = n.write(ctx, now)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (s *Simulator) podsOn(node string) ([]*corev1.Pod, error) {
	objects, err := s.podInformer.GetIndexer().ByIndex(byNode, node)
	if err != nil {
		return nil, fmt.Errorf("look up pods of node %s: %w", node, err)
	}
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// nodeFor returns the state of a node; a re-created node gets a new state.
func (s *Simulator) nodeFor(object *corev1.Node) (*node, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	n, ok := s.nodes[object.Name]
	if ok && n.uid == object.UID {
		n.describe(object)
		return n, nil
	}
	if ok {
		n.close()
	}
	n = s.newNode(object)
	n.describe(object)
	if object.Annotations[annotationProcesses] == "true" && s.CanRunProcesses() == nil {
		var err error
		if n.host, err = s.newHost(n); err != nil {
			return nil, err
		}
	}
	s.nodes[object.Name] = n
	return n, nil
}

func (s *Simulator) forget(name string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if n, ok := s.nodes[name]; ok {
		n.close()
	}
	delete(s.nodes, name)
}
