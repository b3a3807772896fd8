package observe

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Observer reads Snapshots one after the other, and tells which nodes are as they were. It keeps no pods: it is told
// of their events, by way of Pods.
type Observer struct {
	reader    client.Reader
	namespace string

	// known is what was read of the nodes of the last snapshot, by name, and round is its number.
	known map[string]*knownNode
	round uint64
	// version is the last that was given away.
	version uint64
	// facts are those of the managed nodes in the last snapshot, of factsVersion.
	facts        []operand.NodeFacts
	factsVersion uint64

	mu sync.Mutex
	// touched are the nodes whose pods have changed since the last snapshot.
	touched map[string]bool
}

// knownNode is what was read of a state of a node.
type knownNode struct {
	uid             types.UID
	resourceVersion string
	facts           operand.NodeFacts
	version         uint64
	// round is the last snapshot that had the node.
	round uint64
}

// NewObserver makes an observer of the cluster's nodes, and of what the namespace has.
func NewObserver(reader client.Reader, namespace string) *Observer {
	return &Observer{reader: reader, namespace: namespace, known: map[string]*knownNode{}, touched: map[string]bool{}}
}

// Pods notes the events of pods, and lets all of them pass. It belongs before any predicate that drops some: what is
// no news for a verdict now may be part of a later one.
func (o *Observer) Pods() predicate.Predicate {
	note := func(objects ...client.Object) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, object := range objects {
			for _, node := range TargetNode(object) {
				o.touched[node] = true
			}
		}
		return true
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return note(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return note(e.ObjectOld, e.ObjectNew) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return note(e.Object) },
		GenericFunc: func(e event.GenericEvent) bool { return note(e.Object) },
	}
}

// takeTouched has the nodes read anew whose pods have changed. An event that comes later is for the next snapshot, and
// causes it.
func (o *Observer) takeTouched() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for node := range o.touched {
		if known, is := o.known[node]; is {
			known.resourceVersion = ""
		}
	}
	clear(o.touched)
}

// Snapshot reads the cluster as it is now, but for the pods. Not to be called by two at once.
func (o *Observer) Snapshot(ctx context.Context) (Snapshot, error) {
	o.takeTouched()
	snapshot := Snapshot{Undiscovered: map[string]bool{}}
	nodes := &corev1.NodeList{}
	if err := o.reader.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return snapshot, fmt.Errorf("listing nodes: %w", err)
	}
	o.round++
	snapshot.Nodes = make([]Node, 0, len(o.facts))
	differs := false
	for i := range nodes.Items {
		node, isNews := o.know(&nodes.Items[i])
		differs = differs || isNews
		snapshot.AnyDiscovered = snapshot.AnyDiscovered || node.facts.Discovered || node.facts.WasGPU
		if !node.facts.Discovered {
			snapshot.Undiscovered[node.facts.Name] = true
		}
		if node.facts.Managed() {
			snapshot.Nodes = append(snapshot.Nodes, Node{Facts: node.facts, Object: &nodes.Items[i], Version: node.version})
		}
	}
	if o.forgetOthers(len(nodes.Items)) || differs {
		o.recount(snapshot.Nodes)
	}
	snapshot.Facts, snapshot.FactsVersion = o.facts, o.factsVersion
	daemonSets, err := DaemonSets(ctx, o.reader, o.namespace)
	if err != nil {
		return snapshot, err
	}
	snapshot.DaemonSets = daemonSets
	snapshot.Definitions, err = definitions(ctx, o.reader)
	return snapshot, err
}

// know returns what was read of the node, or its facts read anew if it has changed, and whether these differ.
func (o *Observer) know(object *corev1.Node) (node *knownNode, differs bool) {
	node, is := o.known[object.Name]
	switch {
	case !is || node.uid != object.UID:
		node, differs = &knownNode{uid: object.UID, facts: Facts(object)}, true
		o.known[object.Name] = node
	case node.resourceVersion != object.ResourceVersion:
		if facts := Facts(object); !reflect.DeepEqual(facts, node.facts) {
			node.facts, differs = facts, true
		}
	}
	if node.resourceVersion != object.ResourceVersion {
		o.version++
		node.resourceVersion, node.version = object.ResourceVersion, o.version
	}
	node.round = o.round
	return node, differs
}

// forgetOthers drops the nodes that this snapshot does not have, and tells whether there were any.
func (o *Observer) forgetOthers(nodes int) bool {
	if len(o.known) == nodes {
		return false
	}
	maps.DeleteFunc(o.known, func(_ string, node *knownNode) bool { return node.round != o.round })
	return true
}

// recount gathers the facts of the managed nodes anew. What was given away before stays as it is.
func (o *Observer) recount(nodes []Node) {
	o.factsVersion++
	o.facts = make([]operand.NodeFacts, 0, len(nodes))
	for i := range nodes {
		o.facts = append(o.facts, nodes[i].Facts)
	}
}

// PodsOn reads the operands' pods on these nodes.
func (o *Observer) PodsOn(ctx context.Context, nodes []string) (map[string]NodePods, error) {
	pods := make(map[string]NodePods, len(nodes))
	for _, node := range nodes {
		found, err := PodsOnNode(ctx, o.reader, o.namespace, node)
		if err != nil {
			return nil, err
		}
		pods[node] = found
	}
	return pods, nil
}
