package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// What the observer knows of the stack. It is repeated here so that the measurement does not depend on the operator's
// code.
const (
	appLabel     = "app"
	validatorApp = "nvidia-operator-validator"
	migLabel     = "nvidia.com/mig.config"
	migState     = "nvidia.com/mig.config.state"
	migDone      = "success"
	// gatedLabel is one of the labels that a node gets, all in one write, once its toolkit is ready.
	gatedLabel = "nvidia.com/gpu.deploy.device-plugin"
)

// usablePods are the apps without which no GPU of a node can be used.
var usablePods = []string{driverApp, toolkitApp, pluginApp, validatorApp}

// moments are when the observer has first seen each step of a node; zero: not yet.
type moments struct {
	// ready are the apps by which a pod is Ready.
	ready map[string]time.Time
	// gated is when it has the labels that wait for the toolkit, and partitioned when its MIG layout is applied, if it
	// has one.
	gated, partitioned time.Time
	// usable is when its condition GPUReady is True.
	usable time.Time
}

// observer records by watches, independently of the operator's status, how each node becomes ready.
type observer struct {
	lock  sync.Mutex
	nodes map[string]*moments
}

func newObserver() *observer { return &observer{nodes: map[string]*moments{}} }

// start watches pods and nodes until the context ends, and returns once the current state is read.
func (o *observer) start(ctx context.Context, config *rest.Config) error {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create the client of the observer: %w", err)
	}
	pods := informers.NewSharedInformerFactoryWithOptions(clients, 0,
		informers.WithNamespace(namespace)).Core().V1().Pods().Informer()
	nodes := informers.NewSharedInformerFactory(clients, 0).Core().V1().Nodes().Informer()
	podsSeen, podsErr := pods.AddEventHandler(handlerOf(func(pod *corev1.Pod, gone bool) {
		if !gone {
			o.podSeen(pod, time.Now())
		}
	}))
	nodesSeen, nodesErr := nodes.AddEventHandler(handlerOf(func(node *corev1.Node, gone bool) {
		if !gone {
			o.nodeSeen(node, time.Now())
		}
	}))
	if err := errors.Join(podsErr, nodesErr); err != nil {
		return fmt.Errorf("observe pods and nodes: %w", err)
	}
	go pods.RunWithContext(ctx)
	go nodes.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), podsSeen.HasSynced, nodesSeen.HasSynced) {
		return fmt.Errorf("observe pods and nodes: %w", context.Cause(ctx))
	}
	return nil
}

// of returns the moments of a node. The caller holds the lock.
func (o *observer) of(node string) *moments {
	if o.nodes[node] == nil {
		o.nodes[node] = &moments{ready: map[string]time.Time{}}
	}
	return o.nodes[node]
}

func (o *observer) podSeen(pod *corev1.Pod, now time.Time) {
	if pod.Spec.NodeName == "" || readySince(pod).IsZero() {
		return
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	m, app := o.of(pod.Spec.NodeName), pod.Labels[appLabel]
	if _, known := m.ready[app]; !known {
		m.ready[app] = now
	}
}

func (o *observer) nodeSeen(node *corev1.Node, now time.Time) {
	o.lock.Lock()
	defer o.lock.Unlock()
	m := o.of(node.Name)
	first := func(moment *time.Time, holds bool) {
		if moment.IsZero() && holds {
			*moment = now
		}
	}
	_, gated := node.Labels[gatedLabel]
	first(&m.gated, gated)
	first(&m.partitioned, node.Labels[migLabel] != "" && node.Labels[migState] == migDone)
	first(&m.usable, slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == gpuReady && c.Status == corev1.ConditionTrue
	}))
}

// usable returns how many nodes have a condition that is True.
func (o *observer) usable() int {
	o.lock.Lock()
	defer o.lock.Unlock()
	count := 0
	for _, m := range o.nodes {
		if !m.usable.IsZero() {
			count++
		}
	}
	return count
}

// latencies returns in seconds, for each node, the time from the toolkit's readiness to the labels that wait for it,
// and from the readiness of the last pod without which no GPU can be used to the condition. A node whose condition
// waited for its MIG layout counts from there.
func (o *observer) latencies() (toLabels, toCondition []float64) {
	o.lock.Lock()
	defer o.lock.Unlock()
	for _, m := range o.nodes {
		if from, known := m.ready[toolkitApp]; known && !m.gated.IsZero() {
			toLabels = append(toLabels, m.gated.Sub(from).Seconds())
		}
		if from, complete := m.lastStep(); complete && !m.usable.IsZero() {
			toCondition = append(toCondition, m.usable.Sub(from).Seconds())
		}
	}
	return toLabels, toCondition
}

// lastStep returns when the node's GPUs could be used; false if a pod has never been ready.
func (m *moments) lastStep() (last time.Time, complete bool) {
	last = m.partitioned
	for _, app := range usablePods {
		at, known := m.ready[app]
		if !known {
			return last, false
		}
		if at.After(last) {
			last = at
		}
	}
	return last, true
}
