package apply

import (
	"errors"

	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// provided tells whether an object of somebody else does what the intent is for, so that it can be left to
// its owner: a RuntimeClass with the wanted handler that bears on no pod otherwise. k3s and RKE2 bring the
// class nvidia. A handler never changes.
func isProvided(owner types.UID, intent, live client.Object) bool {
	desired, isDesired := intent.(*nodev1.RuntimeClass)
	class, isClass := live.(*nodev1.RuntimeClass)
	return isDesired && isClass && errors.Is(checkOwner(owner, live), ErrConflict) && class.DeletionTimestamp == nil &&
		class.Handler == desired.Handler && class.Scheduling == nil && class.Overhead == nil
}
