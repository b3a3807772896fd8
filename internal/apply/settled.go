package apply

import (
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// settled remembers which objects were found to say what their intents say. A caller that brings the same intent again,
// the very same object, has it compared once for each version of the live one. It may be lost at any time.
type settled struct {
	mu   sync.Mutex
	know map[string]settledObject
}

// settledObject is an intent, and the live object as far as the comparison has looked at it.
type settledObject struct {
	owner  types.UID
	intent client.Object

	uid types.UID
	// generation counts the changes of a spec; resourceVersion stands for it in kinds that have none.
	generation          int64
	resourceVersion     string
	labels, annotations map[string]string
	owners              []metav1.OwnerReference
	deleted             bool
}

func settledOf(owner types.UID, intent, live client.Object) settledObject {
	object := settledObject{
		owner: owner, intent: intent, uid: live.GetUID(), generation: live.GetGeneration(),
		labels: live.GetLabels(), annotations: live.GetAnnotations(), owners: live.GetOwnerReferences(),
		deleted: live.GetDeletionTimestamp() != nil,
	}
	if object.generation == 0 {
		object.resourceVersion = live.GetResourceVersion()
	}
	return object
}

// holds tells whether the comparison of the two would find what it has found the last time: no difference.
func (s *settled) holds(owner types.UID, intent, live client.Object) bool {
	s.mu.Lock()
	known, is := s.know[key(intent)]
	s.mu.Unlock()
	return is && known.intent == intent && reflect.DeepEqual(known, settledOf(owner, intent, live))
}

func (s *settled) keep(owner types.UID, intent, live client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.know == nil {
		s.know = map[string]settledObject{}
	}
	s.know[key(intent)] = settledOf(owner, intent, live)
}

func (s *settled) forget(object client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.know, key(object))
}
