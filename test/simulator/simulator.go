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
	// Config reaches the API server. It should have no rate limit.
	Config *rest.Config
	// Timing defaults to DefaultTiming.
	Timing *Timing
	// Seed decides how durations vary.
	Seed int64
	// Workers is how many nodes are worked on at a time; the default is 16.
	Workers int
	// Programs let nodes run processes, see NodeSpec.Processes; without them, none does.
	Programs host.Programs
	// Dir is where the machines of such nodes are made. The default is a temporary directory that goes
	// away with the simulator; one that is named here is kept.
	Dir string
}

// Simulator plays all nodes that carry the label type=kwok.
type Simulator struct {
	client  kubernetes.Interface
	timing  Timing
	dice    dice
	workers int
	kubelet string
	faults  faults
	queue   workqueue.TypedRateLimitingInterface[string]
	// serial numbers the nodes that were added, addresses the pods.
	serial, addresses atomic.Int64

	// programs and noProcesses are about nodes that run processes: what they run, or why none can.
	programs    host.Programs
	noProcesses error
	// server is the API server's address, as pods find it.
	server string
	// dir holds the machines of the nodes, and is removed in the end if it is temporary.
	dir       string
	temporary bool
	// cancel ends the simulator; ended is closed when nothing of it is left.
	cancel context.CancelFunc
	ended  chan struct{}

	nodeInformer, podInformer cache.SharedIndexInformer
	nodeLister                corelisters.NodeLister

	lock  sync.Mutex
	nodes map[string]*node
}

// New prepares a simulator for an API server that runs. Start brings it to life.
func New(opts Options) (*Simulator, error) {
	cfg := rest.CopyConfig(opts.Config)
	// Protobuf halves what watching a thousand nodes costs.
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("ask for the server's version: %w", err)
	}
	s := &Simulator{
		client: client, timing: DefaultTiming(), workers: defaultWorkers,
		kubelet: version.GitVersion, nodes: map[string]*node{},
		// An outage of the API server must not put a node to sleep for minutes.
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
	return s, s.prepareInformers()
}

// prepareProcesses finds out whether nodes can run processes.
func (s *Simulator) prepareProcesses(opts Options) {
	s.programs, s.server, s.dir = opts.Programs, opts.Config.Host, opts.Dir
	if s.programs.GPUNode == "" || s.programs.StandIn == "" {
		s.noProcesses = errors.New("the simulator was given no programs to run")
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

// nodeOf names the node that an object is or belongs to.
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

// trim drops what is never read.
func trim(object any) (any, error) {
	if accessor, ok := object.(metav1.Object); ok {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// enqueuer adds the node that an object belongs to. Updates that only echo the simulator's own
// writes are added too: looking at a node costs little, and writes nothing if nothing changed.
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
			// With a conflict there is another pod by the name, or there are too many writers at the moment.
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

// process carries one node on and writes what changed.
func (s *Simulator) process(ctx context.Context, name string) error {
	object, err := s.nodeLister.Get(name)
	if apierrors.IsNotFound(err) {
		s.forget(name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up node %s: %w", name, err)
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
	for again := true; again; {
		n.advance(ctx, now)
		if err := n.syncDriver(); err != nil {
			return err
		}
		// A changed number of allocatable GPUs is what a validation may wait for.
		again, err = n.write(ctx, now)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if next := n.next(); !next.IsZero() {
		s.queue.AddAfter(name, time.Until(next))
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

// nodeFor returns the state of a node; one that was made anew under its old name starts afresh.
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
