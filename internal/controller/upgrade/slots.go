package upgrade

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// slotsConflict is why no upgrade starts while a ConfigMap of another owner has the name.
const slotsConflict = "ConfigMap %s exists and is not the operator's: rename or delete it"

// slotsImmutable is why no upgrade starts after another client has made the ConfigMap immutable.
const slotsImmutable = "ConfigMap %s is immutable: delete it"

// The calls for the slots.
const (
	readsSlots  = "reading"
	writesSlots = "writing"
)

// refreshSlots reads the ConfigMap with the slots from the API server, unless there can be none and no node needs one.
// It remembers whether there are any, and why they cannot be read, and logs what it leaves out.
func (s *scope) refreshSlots(ctx context.Context) error {
	s.cluster.Slots = upgrade.Slots{}
	if !s.memory.mayHaveSlots && !s.needsSlots() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	object := &corev1.ConfigMap{}
	err := s.Live.Get(ctx, s.keyOf(labels.UpgradeSlots), object)
	if apierrors.IsNotFound(err) {
		s.forgetSlotsRefusal(readsSlots)
		s.memory.mayHaveSlots = false
		return nil
	}
	if err != nil {
		return s.blockSlots(ctx, readsSlots, err)
	}
	s.forgetSlotsRefusal(readsSlots)
	s.memory.mayHaveSlots = false
	if object.Labels[labels.ManagedBy] != labels.ManagedByValue {
		s.cluster.SlotsConflict = fmt.Sprintf(slotsConflict, labels.UpgradeSlots)
		// Its end causes no event: only objects with the label are watched.
		s.RequeueAfter(s.Timing.LastRetry)
		return nil
	}
	if object.Immutable != nil && *object.Immutable {
		s.cluster.SlotsConflict = fmt.Sprintf(slotsImmutable, labels.UpgradeSlots)
		return nil
	}
	slots, unreadable := upgrade.DecodeSlots(object.Data)
	if len(unreadable) > 0 {
		log.FromContext(ctx).Info("Ignoring entries of the ConfigMap with the nodes that may be upgraded: they are not "+
			"in JSON, and are removed with the next change", "configMap", object.Name, "keys", strings.Join(unreadable, ", "))
	}
	s.slots, s.cluster.Slots, s.memory.mayHaveSlots = object, slots, len(slots) > 0
	return nil
}

// blockSlots makes the error of a call for the slots why none is granted, if the API server refuses that call for
// good, by a missing right or an admission policy: nodes that have begun need no slot to go on, and must not stay
// cordoned. Other errors are returned.
func (s *scope) blockSlots(ctx context.Context, doing string, err error) error {
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("%s ConfigMap %s, which has the nodes that may be upgraded: %w", doing, labels.UpgradeSlots, err)
	}
	s.cluster.SlotsReason = v1.ReasonReconcileFailed
	answer := s.noteSlotsRefused(ctx, doing, err)
	s.cluster.SlotsConflict = fmt.Sprintf("%s ConfigMap %s: %s", doing, labels.UpgradeSlots, answer)
	s.RequeueAfter(s.Timing.LastRetry)
	return nil
}

// noteSlotsRefused returns the answer to a call that is refused again and again, and logs each one that it takes.
func (s *scope) noteSlotsRefused(ctx context.Context, doing string, err error) string {
	refused, known := slotsRefusal{doing: doing, reason: string(apierrors.ReasonForError(err))}, s.memory.refused
	if known.doing == doing && known.reason == refused.reason {
		refused.answer = known.answer
	}
	refused.answer = refused.answer.next(err.Error(), s.Now, s.Timing.KeepAnswer)
	if refused.answer != known.answer {
		log.FromContext(ctx).Error(err, "No node can get a slot for its driver upgrade", "call", doing,
			"configMap", labels.UpgradeSlots)
	}
	s.memory.refused = refused
	return refused.answer.text
}

// forgetSlotsRefusal forgets why such a call was refused.
func (s *scope) forgetSlotsRefusal(doing string) {
	if s.memory.refused.doing == doing {
		s.memory.refused = slotsRefusal{}
	}
}

// needsSlots reports whether a node may get a slot, or has one.
func (s *scope) needsSlots() bool {
	for i := range s.cluster.Nodes {
		if s.cluster.Nodes[i].NeedsTenants() || s.cluster.Nodes[i].MIG.Drain != nil {
			return true
		}
		if record := s.cluster.Nodes[i].Record; record != nil && record.State != upgrade.StateDone {
			return true
		}
	}
	return false
}

// writeSlots writes the slots of the plan, if they have to be. The write fails if another manager has changed them
// since they were read. Without slots there is no ConfigMap.
func (s *scope) writeSlots(ctx context.Context) error {
	if s.planned.Slots == nil {
		if s.cluster.SlotsConflict == "" {
			s.forgetSlotsRefusal(writesSlots)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	if err := s.sendSlots(ctx, s.planned.Slots.Encode()); err != nil {
		if err = s.blockSlots(ctx, writesSlots, err); err == nil {
			s.plan()
		}
		return err
	}
	s.forgetSlotsRefusal(writesSlots)
	s.memory.mayHaveSlots = len(s.planned.Slots) > 0
	// The steps of nodes that have got a slot are in the next plan. The ConfigMap causes no event here.
	s.RequeueAfter(s.Timing.Debounce)
	return nil
}

func (s *scope) sendSlots(ctx context.Context, data map[string]string) error {
	switch {
	case s.slots == nil && len(data) == 0:
		return nil
	case s.slots == nil:
		return s.Client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.Namespace, Name: labels.UpgradeSlots,
				Labels: map[string]string{labels.ManagedBy: labels.ManagedByValue},
			},
			Data: data,
		})
	case len(data) == 0 && s.slots.DeletionTimestamp == nil:
		return s.Client.Delete(ctx, s.slots, client.Preconditions{
			UID: &s.slots.UID, ResourceVersion: &s.slots.ResourceVersion,
		})
	}
	// A merge patch needs no right but the one to apply ConfigMaps.
	after := s.slots.DeepCopy()
	after.Data = data
	return s.Client.Patch(ctx, after, client.MergeFromWithOptions(s.slots, client.MergeFromWithOptimisticLock{}))
}
