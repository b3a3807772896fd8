package clusterpolicy

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// Objects that an older CustomResourceDefinition has admitted may have fields that cannot be decoded. They arrive
// without these fields and with an annotation, see package undecodable. A policy that lacks a field must not be
// applied: its stack stays as it is. It is reported in an Event and a metric, and in its status. The status is not
// written while the definition lacks fields of the spec: the definition that admitted the object may have had them, and
// the write would drop them for good (see schemaguard.go).

// maxUndecodable bounds the objects in memory. If there are more, most of them have been deleted or corrected.
const maxUndecodable = 1024

// freezeUndecodable freezes the pass of a policy that cannot be decoded, and publishes the last decisions again.
func (s *scope) freezeUndecodable(ctx context.Context) {
	s.frozen = true
	var err error
	if s.snapshot, err = observe.ReadSnapshot(ctx, s.Client, s.Namespace); err != nil {
		s.fail(err)
		return
	}
	s.keepDecisions(ctx)
	s.fail(s.recordDrivers(ctx))
}

// keepsStatus reports whether the status of the active policy must not be written, as the pass is frozen.
func (s *scope) keepsStatus() bool {
	return s.frozen && (s.undecodable == "" || len(observe.SpecFields(s.missingFields)) > 0)
}

// notePolicies records and counts the policies that cannot be decoded.
func (s *scope) notePolicies(ctx context.Context) {
	found := 0
	for i := range s.all {
		found += s.noteUndecodable(ctx, v1.ClusterPolicyKind, &s.all[i])
	}
	s.Meter.ObserveUndecodable(v1.ClusterPolicyKind.Kind, found)
}

// noteDrivers is notePolicies for the NVIDIADriver objects.
func (s *scope) noteDrivers(ctx context.Context) {
	found := 0
	for i := range s.drivers {
		found += s.noteUndecodable(ctx, v1alpha1.NVIDIADriverKind, &s.drivers[i])
	}
	s.Meter.ObserveUndecodable(v1alpha1.NVIDIADriverKind.Kind, found)
}

// noteUndecodable returns 1 for an object that cannot be decoded, and records an Event about each generation of it.
func (s *scope) noteUndecodable(ctx context.Context, kind schema.GroupVersionKind, object client.Object) int {
	cause := object.GetAnnotations()[labels.Undecodable]
	if cause == "" {
		delete(s.undecodableEvents, object.GetUID())
		return 0
	}
	if s.undecodableEvents[object.GetUID()] == object.GetGeneration() {
		return 1
	}
	if len(s.undecodableEvents) >= maxUndecodable {
		s.undecodableEvents = map[types.UID]int64{}
	}
	s.undecodableEvents[object.GetUID()] = object.GetGeneration()
	log.FromContext(ctx).Info("An object cannot be decoded", "kind", kind.Kind, "object", object.GetName(), "cause", cause)
	s.Status.RecordUndecodable(ctx, kind, object, "the spec "+cause)
	return 1
}
