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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
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
	return s, s.prepareInformers()
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

// Start runs the simulator until the context ends. It returns once the caches are filled.
func (s *Simulator) Start(ctx context.Context) error {
	go s.nodeInformer.RunWithContext(ctx)
	go s.podInformer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), s.nodeInformer.HasSynced, s.podInformer.HasSynced) {
		return fmt.Errorf("fill the simulator's caches: %w", context.Cause(ctx))
	}
	for range s.workers {
		go s.work(ctx)
	}
	context.AfterFunc(ctx, s.queue.ShutDown)
	return nil
}

func (s *Simulator) work(ctx context.Context) {
	for {
		name, shutdown := s.queue.Get()
		if shutdown {
			return
		}
		if err := s.process(ctx, name); err != nil {
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
	n := s.nodeFor(object)
	now := time.Now()
	n.observe(now, object, pods)
	for again := true; again; {
		n.advance(now)
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
func (s *Simulator) nodeFor(object *corev1.Node) *node {
	s.lock.Lock()
	defer s.lock.Unlock()
	n, ok := s.nodes[object.Name]
	if !ok || n.uid != object.UID {
		n = s.newNode(object)
		s.nodes[object.Name] = n
	}
	return n
}

func (s *Simulator) forget(name string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.nodes, name)
}
