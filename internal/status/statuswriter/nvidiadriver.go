package statuswriter

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/freshness"
)

// DriverWriter is the only writer of NVIDIADriver.status. What it remembers only delays writes, as in Writer. Of its
// methods, only Wrote is safe for concurrent use.
type DriverWriter struct {
	client client.Client
	clock  clock.PassiveClock
	timing Timing
	own    *ownStatuses
	last   map[types.UID]written
}

// maxDrivers bounds the objects in memory. If there are more, most of them have been deleted.
const maxDrivers = 1024

// NewDriverWriter returns a DriverWriter.
func NewDriverWriter(c client.Client, clk clock.PassiveClock, timing Timing) *DriverWriter {
	return &DriverWriter{
		client: c, clock: clk, timing: timing, own: newOwnStatuses(maxDrivers), last: map[types.UID]written{},
	}
}

// Wrote is Writer.Wrote for an NVIDIADriver.
func (w *DriverWriter) Wrote(object *v1alpha1.NVIDIADriver) bool {
	return w.own.has(object.UID, object.Status)
}

// Write updates the status of the object, which is a copy from the cache. It returns after how long to call it again if
// the write must wait, or zero. A conflict, or an object that has been deleted, is no error: an event follows.
func (w *DriverWriter) Write(
	ctx context.Context, object *v1alpha1.NVIDIADriver, status v1alpha1.NVIDIADriverStatus,
) (time.Duration, error) {
	last := w.last[object.UID]
	if freshness.Stale(object.ResourceVersion, last.version) {
		return w.timing.RetryStale, nil
	}
	if equality.Semantic.DeepEqual(object.Status, status) {
		return 0, nil
	}
	interval := w.timing.CounterInterval
	if driverStatusDiffers(object.Status, status) {
		interval = w.timing.Interval
	}
	if wait := interval - w.clock.Since(last.at); wait > 0 {
		return wait, nil
	}
	update := object.DeepCopy()
	update.Status = status
	w.own.add(object.UID, status)
	patch := client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})
	err := w.client.Status().Patch(ctx, update, patch)
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case apierrors.IsConflict(err):
		return w.timing.Interval, nil
	case err != nil:
		return 0, fmt.Errorf("writing status of NVIDIADriver %s: %w", object.Name, err)
	}
	if len(w.last) >= maxDrivers {
		clear(w.last)
	}
	w.last[object.UID] = written{version: update.ResourceVersion, at: w.clock.Now()}
	return 0, nil
}

// driverStatusDiffers reports whether two statuses differ in more than the messages.
func driverStatusDiffers(before, after v1alpha1.NVIDIADriverStatus) bool {
	if before.State != after.State || before.ObservedGeneration != after.ObservedGeneration ||
		len(before.Conditions) != len(after.Conditions) {
		return true
	}
	for i := range after.Conditions {
		one, other := &before.Conditions[i], &after.Conditions[i]
		if one.Type != other.Type || one.Status != other.Status || one.Reason != other.Reason {
			return true
		}
	}
	return false
}
