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

// Key is an object: its kind, namespace and name.
type Key struct{ Kind, Namespace, Name string }

// String is such as "Pod gpu-operator/name".
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

// lists are what each kind is listed by.
func lists() map[string]client.ObjectList {
	return map[string]client.ObjectList{
		Node: &corev1.NodeList{}, Pod: &corev1.PodList{}, DaemonSet: &appsv1.DaemonSetList{}, ConfigMap: &corev1.ConfigMapList{},
		Service: &corev1.ServiceList{}, RuntimeClass: &nodev1.RuntimeClassList{}, Namespace: &corev1.NamespaceList{},
		ClusterPolicy: &v1.ClusterPolicyList{},
	}
}

// World is what there is at a revision. Its objects must not be changed.
type World map[Key]client.Object

// Apply makes the world what it is after an event.
func (w World) Apply(event Event) {
	if event.Gone {
		delete(w, event.Key)
		return
	}
	w[event.Key] = event.Object
}

// All are the objects of a type, in the order of their names.
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
