// Package notify starts passes and reconciles for changes that are not events of a cached object, such as a new Basis.
// It has no state beyond one pending event, and no knowledge of the receiver.
package notify

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Signal sends events to one receiver and never blocks: a pending event stands for all later ones. Create it with New.
type Signal chan event.GenericEvent

// New returns a Signal without a pending event.
func New() Signal { return make(Signal, 1) }

// Notify sends an event unless one is pending.
func (s Signal) Notify() {
	select {
	// The object has no meaning; handlers and predicates expect one.
	case s <- event.GenericEvent{Object: &metav1.PartialObjectMetadata{}}:
	default:
	}
}

// Events returns the channel for source.Channel.
func (s Signal) Events() <-chan event.GenericEvent { return s }
