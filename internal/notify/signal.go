// Package notify triggers controllers by changes that are not those of an object in a cache.
package notify

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Signal sends events to one receiver and never blocks: an event that is not received yet stands for all that follow.
// Make one with New.
type Signal chan event.GenericEvent

// New returns a Signal without an event.
func New() Signal { return make(Signal, 1) }

// Notify sends an event unless one is pending.
func (s Signal) Notify() {
	select {
	// Its object means nothing. Event handlers and predicates expect one.
	case s <- event.GenericEvent{Object: &metav1.PartialObjectMetadata{}}:
	default:
	}
}

// Events returns the channel of the receiver, for source.Channel.
func (s Signal) Events() <-chan event.GenericEvent { return s }
