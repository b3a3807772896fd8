package apply

import (
	"errors"

	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// isProvided reports whether an object of another owner does what the rendered one is for, so that it can stay: a
// RuntimeClass with the same handler that does not affect pods otherwise. k3s and RKE2 create the class nvidia. A
// handler is immutable.
func isProvided(owner types.UID, rendered, live client.Object) bool {
	desired, isDesired := rendered.(*nodev1.RuntimeClass)
	class, isClass := live.(*nodev1.RuntimeClass)
	return isDesired && isClass && errors.Is(checkOwner(owner, live), ErrConflict) && class.DeletionTimestamp == nil &&
		class.Handler == desired.Handler && class.Scheduling == nil && class.Overhead == nil
}
