package healthaction

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

// Remembered returns of how many nodes a version and a failed write are in memory.
func (r *Reconciler) Remembered() (versions, failures int) {
	return len(r.memory.versions), len(r.memory.failures)
}
