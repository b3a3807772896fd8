package clusterpolicy

import (
	"context"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/nvidiadriver"
	"github.com/clusterpolicy/gpu-operator/internal/status"
	"github.com/clusterpolicy/gpu-operator/internal/status/conditions"
)

// +kubebuilder:rbac:groups=nvidia.com,resources=nvidiadrivers,verbs=list;watch
// +kubebuilder:rbac:groups=nvidia.com,resources=nvidiadrivers/status,verbs=patch

// readDrivers reads the NVIDIADriver objects, which have a status also where they are not used. If there may be objects
// that cannot be read, unread says why and what to do.
func (s *scope) readDrivers(ctx context.Context) (unread string, err error) {
	s.drivers, unread, err = s.NVIDIADrivers.Read(ctx, s.snapshot.CRDs)
	return unread, err
}

// addDrivers adds the objects to the input if they declare the drivers, or why they were not read.
func (s *scope) addDrivers(ctx context.Context, input *operand.Input, unread string) (err error) {
	if !input.UsesNVIDIADrivers() {
		return nil
	}
	if unread == "" {
		if unread, err = s.compareDriverSchema(ctx); err != nil {
			return err
		}
	}
	switch {
	case unread != "":
		input.NVIDIADriversUnread = unread
	default:
		input.NVIDIADrivers = nvidiadriver.Declared(s.policy.Spec, s.drivers)
	}
	return nil
}

// compareDriverSchema finds the fields that the cluster's NVIDIADriver CRD does not have. If the spec lacks any, the
// API server may have dropped fields of the objects, so that they must not be used: unread says that, and what to do.
func (s *scope) compareDriverSchema(ctx context.Context) (unread string, err error) {
	readCtx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	if s.missingDriverFields, err = s.DriverSchema.MissingFields(readCtx); err != nil {
		return "", err
	}
	if missing := observe.SpecFields(s.missingDriverFields); len(missing) > 0 {
		return conditions.DriversUnreadMessage(missing, s.Namespace), nil
	}
	return "", nil
}

// disableDrivers writes the status of the NVIDIADriver objects while no policy uses them.
func (s *scope) disableDrivers(ctx context.Context) {
	var err error
	if s.snapshot, err = observe.ReadSnapshot(ctx, s.Client, s.Namespace); err == nil {
		err = s.recordDrivers(ctx)
	}
	s.fail(err)
	s.writeDrivers(ctx)
}

// recordDrivers reads the NVIDIADriver objects for their status alone, and records those that cannot be decoded.
func (s *scope) recordDrivers(ctx context.Context) error {
	_, err := s.readDrivers(ctx)
	s.noteDrivers(ctx)
	return err
}

// reportDrivers writes the status of the NVIDIADriver objects once all nodes are assessed by the basis of this pass.
func (s *scope) reportDrivers(ctx context.Context, in status.Input) {
	if s.basis != nil && in.Unassessed == 0 {
		s.writeDrivers(ctx)
	}
}

// writeDrivers writes the status of the NVIDIADriver objects. A failure concerns one of them alone.
func (s *scope) writeDrivers(ctx context.Context) {
	in := status.DriverInput{Namespace: s.Namespace, View: s.view}
	if s.undecodable != "" {
		in.Held = "no change is applied, as ClusterPolicy " + s.policy.Name + " " + s.undecodable
	}
	if s.basis != nil {
		in.Decisions = s.basis.Decisions
	}
	for i := range s.drivers {
		object := &s.drivers[i]
		if object.DeletionTimestamp != nil {
			continue
		}
		wait, err := s.DriverStatus.Write(ctx, object, status.NVIDIADriver(object, in))
		s.requeueAfter(wait)
		s.fail(err)
	}
}
