package clusterpolicy

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/drivertoolkit"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
	"github.com/clusterpolicy/gpu-operator/internal/status"
)

// readPolicies reads the policies, and finds the active one or, without one, that which is being removed.
func (s *scope) readPolicies(ctx context.Context) {
	var err error
	if s.policy, s.all, err = observe.Policies(ctx, s.Client); err != nil {
		s.fail(err)
		return
	}
	if s.policy == nil {
		s.policy = observe.Removed(s.all)
		s.removing = s.policy != nil
	}
}

// decideOrFreeze reads what the active policy depends on, adds the finalizer to it and decides; or it freezes the pass,
// if the spec may lack fields. It reports whether it has decided.
func (s *scope) decideOrFreeze(ctx context.Context) bool {
	if s.undecodable = s.policy.Annotations[labels.Undecodable]; s.undecodable != "" {
		s.freezeUndecodable(ctx)
		return false
	}
	complete, err := s.confirmSpec(ctx)
	if s.frozen = !complete; err != nil {
		s.fail(err)
		return false
	}
	if s.snapshot, err = observe.ReadSnapshot(ctx, s.Client, s.Namespace); err != nil {
		s.fail(err)
		return false
	}
	if s.frozen {
		s.freeze(ctx)
		return false
	}
	s.unfreeze(ctx)
	input, err := s.gatherInput(ctx)
	if err != nil {
		s.fail(err)
		return false
	}
	// Before the basis is published, as nodes are written by it.
	if !input.Paused() && !s.addFinalizer(ctx) {
		return false
	}
	s.decisions = decide(s.Fleet.Basis(), s.Catalogue, s.policy.Spec, input)
	return true
}

// publish publishes the basis, by which the nodes are written from then on.
func (s *scope) publish(ctx context.Context) {
	s.basis = s.Fleet.Publish(fleet.Basis{Policy: s.policy, Decisions: s.decisions, Stack: s.refreshStack(ctx)}, s.now)
}

// refreshStack returns what nodes are assessed by beside the decisions, and looks for it where that is due.
func (s *scope) refreshStack(ctx context.Context) assess.Stack {
	return assess.Stack{
		DaemonSets: s.snapshot.DaemonSets, CreateFailures: s.refreshCreateFailures(ctx),
		StartFailures: s.refreshStartFailures(ctx),
	}
}

// releaseCluster releases the nodes and the namespace, unless DaemonSets of a deleted policy still run (they were
// orphaned).
func (s *scope) releaseCluster(ctx context.Context) {
	readCtx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	orphans, err := observe.Orphans(readCtx, s.Client, s.Live, s.Namespace, s.all)
	if err != nil {
		s.fail(err)
		return
	}
	orphaned, previous := len(orphans) > 0, s.Fleet.Basis()
	if orphaned && (previous == nil || !previous.KeepNodes) {
		log.FromContext(ctx).Info("No ClusterPolicy exists, but DaemonSets of a deleted one still run: nodes keep their "+
			"labels until a new ClusterPolicy adopts the DaemonSets or they are deleted", "daemonSets", orphans)
	}
	s.Fleet.Publish(fleet.Basis{KeepNodes: orphaned}, s.now)
	s.disableDrivers(ctx)
	if !orphaned {
		s.fail(s.Applier.SetPodSecurity(ctx, s.Namespace, false))
	}
}

// compareSchema finds the fields that the cluster's ClusterPolicy CRD does not have. If the CRD cannot be read, the
// pass continues with the fields that were found last.
func (s *scope) compareSchema(ctx context.Context) {
	readCtx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	missing, err := s.Schema.MissingFields(readCtx)
	s.missingFields = missing
	s.fail(err)
}

// gatherInput gathers what decisions are computed from: the spec with its defaults, and what it refers to. It records
// NVIDIADriver objects that cannot be decoded, and logs what a pass can do without and that cannot be read.
func (s *scope) gatherInput(ctx context.Context) (operand.Input, error) {
	input := s.specInput()
	input.AppliedSpec = s.current.String()
	if input.Paused() {
		// The current spec is not applied.
		input.AppliedSpec = s.lastApplied.String()
	}
	var err error
	if s.optionalKinds, err = s.OptionalKinds.Follow(ctx, s.snapshot.CRDs); err != nil {
		return input, err
	}
	unread, err := s.readDrivers(ctx)
	if err != nil {
		return input, err
	}
	s.noteDrivers(ctx)
	if err = s.addDrivers(ctx, &input, unread); err != nil {
		return input, err
	}
	if input.DriverToolkit, err = s.followDriverToolkit(ctx, input); err != nil {
		return input, err
	}
	s.addOpenShift(ctx, &input)
	uses := append(s.Catalogue.Uses(input), operand.AdmissionPolicies)
	input.Contents, err = observe.Contents(ctx, s.References, s.Namespace, uses)
	return input, err
}

// specInput returns the part of the input that follows from the spec and the operator's options.
func (s *scope) specInput() operand.Input {
	return operand.Input{
		Spec: effective.Of(s.policy.Spec), Namespace: s.Namespace, OperatorImage: s.OperatorImage, OperatorMetrics: s.Metrics,
		Images: s.Images, Proxy: s.Proxy,
	}
}

// A ClusterRole, because a Role could not be installed in clusters without this namespace, which only OpenShift has.
// +kubebuilder:rbac:groups=image.openshift.io,resources=imagestreams,resourceNames=driver-toolkit,verbs=list;watch

// followDriverToolkit watches OpenShift's driver toolkit while any node needs it, and returns its images. An error of
// the read is only logged: it concerns the drivers of these nodes alone, whose verdicts report it.
func (s *scope) followDriverToolkit(ctx context.Context, input operand.Input) (map[string]string, error) {
	if !drivertoolkit.IsUsed(input, s.view.EachFacts()) {
		return nil, s.DriverToolkit.StopWatch(ctx)
	}
	images, err := s.DriverToolkit.Images(ctx)
	s.driverToolkitUnread = err != nil
	s.logRead(ctx, err, "Reading the images of OpenShift's driver toolkit failed: "+
		"no driver is installed on further nodes with Red Hat CoreOS until they can be read")
	return images, nil
}

// +kubebuilder:rbac:groups=config.openshift.io,resources=proxies,resourceNames=cluster,verbs=list;watch
// +kubebuilder:rbac:groups=config.openshift.io,resources=clusterversions,resourceNames=version,verbs=list;watch

// addOpenShift adds what the configuration of OpenShift has for drivers to the input. An error is only logged, as
// running drivers need none of it: what was read before stays. If this process has read nothing yet, the driver is
// held, because its DaemonSets have what an earlier process has read.
func (s *scope) addOpenShift(ctx context.Context, input *operand.Input) {
	found, err := s.OpenShift.Read(ctx, s.snapshot.CRDs)
	s.logRead(ctx, err, "Reading the configuration of OpenShift failed: until it can be read, new driver "+
		"pods get the version and the proxy of the cluster that were read last")
	if err == nil {
		input.OpenShiftCluster = found
		return
	}
	basis := s.Fleet.Basis()
	if basis == nil || basis.Decisions == nil || basis.Decisions.Input.OpenShiftUnread != "" {
		input.OpenShiftUnread = err.Error()
		return
	}
	input.OpenShiftCluster = basis.Decisions.Input.OpenShiftCluster
}

// refreshCreateFailures returns the known reasons why pods of DaemonSets are missing, by DaemonSet, and schedules the
// next look for them. An error is only logged.
func (s *scope) refreshCreateFailures(ctx context.Context) map[string]assess.PodFailure {
	readCtx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	wait, err := s.CreateFailures.Refresh(readCtx, s.snapshot.DaemonSets)
	s.logRead(ctx, err, "Reading the Events of DaemonSets failed: the status may not report why pods are missing")
	s.requeueAfter(wait)
	return s.CreateFailures.Found()
}

// refreshStartFailures returns the known reasons why pods do not start, by the UID of the pod, as
// refreshCreateFailures.
func (s *scope) refreshStartFailures(ctx context.Context) map[types.UID]assess.PodFailure {
	readCtx, cancel := context.WithTimeout(ctx, s.Timing.Deadline)
	defer cancel()
	wait, err := s.StartFailures.Refresh(readCtx, s.snapshot.DaemonSets)
	s.logRead(ctx, err, "Reading the Events of pods failed: the status may not report why pods do not start")
	s.requeueAfter(wait)
	return s.StartFailures.Found()
}

// logRead logs the error of a read that a pass can do without, unless the read before failed in the same way.
func (s *scope) logRead(ctx context.Context, err error, message string) {
	switch {
	case err == nil:
		delete(s.failedReads, message)
	case s.failedReads[message] != err.Error():
		s.failedReads[message] = err.Error()
		log.FromContext(ctx).Error(err, message)
	}
}

// plan computes the plan for the current nodes.
func (s *scope) plan() {
	s.planned = s.caches.compute(s.decisions, s.optionalKinds, s.view, s.snapshot.DaemonSets)
}

// render renders the objects of each Apply step. A failure concerns the operand of the step alone.
func (s *scope) render(ctx context.Context) {
	owner := render.Owner{Name: s.policy.Name, UID: string(s.policy.UID)}
	for _, step := range s.planned.Steps {
		if step.Action != plan.Apply {
			continue
		}
		live, err := s.liveDaemonSets(ctx, step)
		if err != nil {
			// Also an error of the pass, so that it is retried: no event follows.
			s.fail(err)
			s.applied[step.Operand.Name] = status.ApplyResult{Err: err}
			continue
		}
		objects, err := s.caches.render(s.planned, step, owner, live)
		if err != nil {
			s.applied[step.Operand.Name] = status.ApplyResult{Err: err}
			continue
		}
		s.objects[step.Operand.Name] = objects
	}
}
