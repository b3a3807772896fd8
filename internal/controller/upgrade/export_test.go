package upgrade

import (
	"context"
	"weak"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ReconcileWeakly is Reconcile. The function that it returns reports whether the scope of this pass is still in memory.
func (r *Reconciler) ReconcileWeakly(ctx context.Context) (alive func() bool, result reconcile.Result, err error) {
	s := r.newScope()
	pointer := weak.Make(s)
	result, err = s.run(ctx)
	return func() bool { return pointer.Value() != nil }, result, err
}

// RefusedSlots returns the answer to a call for the slots that is remembered; empty for none.
func (r *Reconciler) RefusedSlots() string { return r.memory.refused.answer.text }

// Remembered returns of how many nodes or pods each map is in memory.
func (r *Reconciler) Remembered() map[string]int { return r.memory.sizes() }
