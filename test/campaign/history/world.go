package history

import (
	"iter"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// Key identifies an object: kind, namespace and name.
type Key struct{ Kind, Namespace, Name string }

// String returns the form "Pod gpu-operator/name".
func (k Key) String() string {
	return k.Kind + " " + strings.TrimPrefix(k.Namespace+"/"+k.Name, "/")
}

// Kinds that are watched.
const (
	Node          = "Node"
	Pod           = "Pod"
	DaemonSet     = "DaemonSet"
	ConfigMap     = "ConfigMap"
	Service       = "Service"
	RuntimeClass  = "RuntimeClass"
	Namespace     = "Namespace"
	ClusterPolicy = "ClusterPolicy"
)

// lists returns the list type of each kind.
func lists() map[string]client.ObjectList {
	return map[string]client.ObjectList{
		Node:          &corev1.NodeList{},
		Pod:           &corev1.PodList{},
		DaemonSet:     &appsv1.DaemonSetList{},
		ConfigMap:     &corev1.ConfigMapList{},
		Service:       &corev1.ServiceList{},
		RuntimeClass:  &nodev1.RuntimeClassList{},
		Namespace:     &corev1.NamespaceList{},
		ClusterPolicy: &v1.ClusterPolicyList{},
	}
}

// World has all objects at a revision, which must not be changed.
type World map[Key]client.Object

// Apply applies an event to the world.
func (w World) Apply(event Event) {
	if event.Gone {
		delete(w, event.Key)
		return
	}
	w[event.Key] = event.Object
}

// All returns the objects of a type, sorted by name.
func All[T client.Object](w World) iter.Seq2[Key, T] {
	return func(yield func(Key, T) bool) {
		keys := slices.SortedFunc(maps.Keys(w), func(a, b Key) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			if object, is := w[key].(T); is && !yield(key, object) {
				return
			}
		}
	}
}
