package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// invariantLabel is an irrelevant label, and migMap a ConfigMap of the MIG manager, which exists in the workload mig.
const (
	invariantLabel = "test.example.org/note"
	migMap         = "default-mig-parted-config"
)

func actorRows() []row {
	plugin := options{counts: true, mayGo: ofOperand("device-plugin")}
	return []row{
		{id: "X1", what: "another client edits fields of the operator, and others", sample: 1, points: fixed(
			atRest("image",
				editPlugin(func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "example.com/other:1" }),
				plugin),
			atRest("selector", editPlugin(func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.NodeSelector = nil }), plugin),
			atRest("labels", editPlugin(func(ds *appsv1.DaemonSet) { delete(ds.Labels, labels.ManagedBy) }), plugin),
			atRest("digest", editPlugin(func(ds *appsv1.DaemonSet) { ds.Annotations[labels.Digest] = "forged" }), options{}),
			onMIG("data", editMap, options{}),
			point{
				name: "rest/foreign", workload: rest, faults: strikes(labelDaemonSet("hpc")),
				options: options{differs: true, after: foreignLabelIsKept},
			},
		)},
		{id: "X2", what: "another client writes the same field every 500 ms for 10 s", sample: 1, points: fixed(
			point{name: "rest/label", workload: rest, options: options{
				counts: true, mayGo: ofOperand("device-plugin"),
			}, faults: []Fault{
				{When: When{Moment: Ready}, What: Repeated{500 * time.Millisecond, editPlugin(func(ds *appsv1.DaemonSet) {
					ds.Labels[labels.ManagedBy] = "another"
				})}, For: 10 * time.Second},
			}},
		)},
		elsewhere("X3", "an admission webhook that hangs, or changes applied objects",
			"TestAWebhookThatHangs, TestAWebhookThatChangesObjectsBack (test/integration)"),
		{
			id: "X4", what: "a foreign object has a name that the operator needs", sample: 1, points: fixed(foreignObjects()...),
		},
		elsewhere("X5", "an obstacle is removed: no other action is needed", "rows X4, R1, R2 and R3 end so"),
		{
			id: "X6", what: "another client deletes an object of the stack, or the policy and orphans its objects", sample: 1,
			points: fixed(
				atRest("daemonset", deleteNamed(daemonSetNamed(pluginName)), plugin),
				atRest("driver", deleteNamed(daemonSetNamed(driverName)), options{
					counts: true, newDrivers: true, mayGo: withDriver,
				}),
				onMIG("configmap", deleteNamed(migMapObject()), options{counts: true}),
				atRest("runtimeclass", deleteNamed(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "nvidia"}}),
					options{counts: true}),
				atRest("orphans", orphan, options{counts: true}),
			)},
		{id: "X7", what: "owner references or the finalizer are removed, or refer to another owner", sample: 1, points: fixed(
			atRest("finalizer", func(ctx context.Context, r *run) error {
				return r.patch(ctx, &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: policyName}},
					`{"metadata":{"finalizers":null}}`)
			}, options{after: finalizerIsBack}),
			atRest("stripped", editPlugin(func(ds *appsv1.DaemonSet) { ds.OwnerReferences = nil }), options{}),
			onMIG("stripped-map", func(ctx context.Context, r *run) error {
				return edit(ctx, r.quiet, migMapObject(), func(m *corev1.ConfigMap) { m.OwnerReferences = nil })
			}, options{}),
			// An object with another owner is not removed.
			onMIG("forged", forge, options{counts: true, differs: true, spoils: true}),
		)},
		elsewhere("X8", "another client writes to the state of a driver upgrade: labels, annotations, slots",
			"TestWedges and TestForgedSlots (internal/upgrade), TestForeignWrites (test/upgrades)"),
		{id: "X9", what: "another client empties the status of the policy, or removes the condition of a node", sample: 1,
			points: fixed(
				atRest("status", emptyStatus, options{counts: true}),
				atRest("condition", removeCondition, options{counts: true}),
			)},
		elsewhere("X10", "GPU work by claims, which no resource of a pod shows, and GPUs that others offer, or twice",
			"TestOf (internal/upgrade/gpuuse), TestEachWayToGetAGPU (internal/cli/explain), "+
				"TestClaimsOfEachKubernetes (test/integration), TestOnlyGPUPodsAreEvicted "+
				"(test/upgrades), TestGPUsThatAreOfferedTwice (internal/node/assess)"),
		elsewhere("X11", "clients that hold connections to a port, by requests that they do not finish",
			"TestUnfinishedRequestsEnd, TestConnectionsAreLimited (internal/kube/boundedserver), "+
				"TestProbesAreServedWithinBounds (cmd/gpu-operator/app), TestServeLimitsConnections (internal/onnode/export)"),
	}
}

// emptyStatus removes the whole status of the policy.
func emptyStatus(ctx context.Context, r *run) error {
	policy, err := r.policy(ctx)
	if err != nil {
		return err
	}
	return r.quiet.Status().Patch(ctx, policy, client.RawPatch(types.MergePatchType, []byte(`{"status":null}`)))
}

// removeCondition removes the condition nvidia.com/GPUReady of a node.
func removeCondition(ctx context.Context, r *run) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	return r.quiet.Status().Patch(ctx, node, client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil,
		`{"status":{"conditions":[{"type":%q,"$patch":"delete"}]}}`, labels.ConditionGPUReady)))
}

// strikes returns faults by one actor once the stack is ready.
func strikes(does func(context.Context, *run) error) []Fault {
	return []Fault{{When: When{Moment: Ready}, What: Actor{Does: does}}}
}

// atRest returns a point where an actor acts on a ready stack, which must recover.
func atRest(name string, does func(context.Context, *run) error, o options) point {
	return point{name: "rest/" + name, workload: rest, faults: strikes(does), options: o}
}

func finalizerIsBack(ctx context.Context, r *run) error {
	policy, err := r.policy(ctx)
	if err == nil && !slices.Contains(policy.Finalizers, labels.RemovalFinalizer) {
		err = fmt.Errorf("L5 the policy has the finalizers %q", policy.Finalizers)
	}
	return err
}

// withDriver reports the operands whose pods are replaced with those of the driver: the others have validated it.
func withDriver(operand, _ string) bool {
	return slices.Contains([]string{"driver", "container-toolkit", "operator-validator"}, operand)
}

const driverName = "nvidia-driver-daemonset"

// onMIG is atRest with GPUs that support MIG.
func onMIG(name string, does func(context.Context, *run) error, o options) point {
	return point{name: "mig/" + name, workload: mig, faults: strikes(does), options: o}
}

func daemonSetNamed(name string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func migMapObject() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: migMap}}
}

func editPlugin(change func(*appsv1.DaemonSet)) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error { return edit(ctx, r.quiet, daemonSetNamed(pluginName), change) }
}

func editMap(ctx context.Context, r *run) error {
	return edit(ctx, r.quiet, migMapObject(), func(m *corev1.ConfigMap) {
		for key := range m.Data {
			m.Data[key] = "changed"
		}
	})
}

func labelDaemonSet(value string) func(context.Context, *run) error {
	return editPlugin(func(ds *appsv1.DaemonSet) {
		if value == "" {
			delete(ds.Labels, invariantLabel)
			return
		}
		ds.Labels[invariantLabel] = value
	})
}

func foreignLabelIsKept(ctx context.Context, r *run) error {
	ds := daemonSetNamed(pluginName)
	if err := r.quiet.Get(ctx, client.ObjectKeyFromObject(ds), ds); err != nil {
		return err
	}
	if ds.Labels[invariantLabel] == "" {
		return errors.New("S8 another client's label on a DaemonSet was removed")
	}
	return nil
}

// Repeated is an actor that repeats the same action.
type Repeated struct {
	Every time.Duration
	Does  func(context.Context, *run) error
}

func (p Repeated) begin(ctx context.Context, r *run, _ *operator) (func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := p.Does(ctx, r); err != nil && ctx.Err() == nil {
				r.fail(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(p.Every):
			}
		}
	}()
	return func() { cancel(); <-ended }, nil
}

// deleteNamed deletes an object, and waits until it is re-created.
func deleteNamed(object client.Object) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		copied, is := object.DeepCopyObject().(client.Object)
		if !is {
			return fmt.Errorf("%T is not an object", object)
		}
		if err := r.quiet.Get(ctx, client.ObjectKeyFromObject(copied), copied); err != nil {
			return err
		}
		uid := copied.GetUID()
		if err := r.quiet.Delete(ctx, copied); err != nil {
			return err
		}
		return r.awaitWithin(ctx, convergeTime, "another "+object.GetName(), func() error {
			if err := r.quiet.Get(ctx, client.ObjectKeyFromObject(copied), copied); err != nil {
				return err
			}
			if copied.GetUID() == uid {
				return errors.New("it still exists")
			}
			return nil
		})
	}
}

// orphan deletes the policy, orphans its objects, and re-creates it.
func orphan(ctx context.Context, r *run) error {
	policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: policyName}}
	if err := r.quiet.Delete(ctx, policy, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		return err
	}
	return r.awaitWithin(ctx, convergeTime, "the policy to be deleted and re-created", func() error {
		again, err := cluster.SamplePolicy()
		if err != nil {
			return err
		}
		return r.quiet.Create(ctx, again)
	})
}

// forge gives an object of the stack another owner. The operator must neither write nor delete it from then on.
func forge(ctx context.Context, r *run) error {
	owner := &corev1.ConfigMap{}
	if err := r.quiet.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "users-own"}, owner); err != nil {
		return err
	}
	return edit(ctx, r.quiet, migMapObject(), func(m *corev1.ConfigMap) {
		m.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: new(true),
		}}
	})
}

// foreignObjects exist before the installation. They are reported and not changed until they are removed.
func foreignObjects() []point {
	objects := map[string]struct {
		workload *workload
		object   client.Object
		operand  string
	}{
		"daemonset": {install, noPods(metav1.ObjectMeta{Namespace: namespace, Name: pluginName}), "device-plugin"},
		"configmap": {mig, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: migMap}, Data: map[string]string{"key": "mine"},
		}, "mig-manager"},
	}
	var points []point
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		foreign := objects[name]
		points = append(points, point{
			name: foreign.workload.id + "/" + name, workload: foreign.workload, options: options{counts: true}, faults: []Fault{{
				When: When{Moment: Start}, For: 8 * time.Second,
				What: Actor{
					Does: func(ctx context.Context, r *run) error {
						copied, is := foreign.object.DeepCopyObject().(client.Object)
						if !is {
							return fmt.Errorf("%T is not an object", foreign.object)
						}
						return r.quiet.Create(ctx, copied)
					},
					Back: func(ctx context.Context, r *run) error { return r.conflictEnds(ctx, foreign.object, foreign.operand) },
				},
			}}})
	}
	return points
}

// conflictEnds checks that a conflicting object is reported and not changed, and removes it.
func (r *run) conflictEnds(ctx context.Context, object client.Object, operand string) error {
	if err := r.awaitWithin(ctx, truthTime, operand+" to have the state Conflict", func() error {
		policy, err := r.policy(ctx)
		if err != nil {
			return err
		}
		for _, status := range policy.Status.Operands {
			if status.Name == operand && status.State == v1.OperandConflict && strings.Contains(
				status.Message, object.GetName(),
			) {
				return nil
			}
		}
		return errors.New("it has not")
	}); err != nil {
		return err
	}
	live, is := object.DeepCopyObject().(client.Object)
	if !is {
		return fmt.Errorf("%T is not an object", object)
	}
	if err := r.quiet.Get(ctx, client.ObjectKeyFromObject(object), live); err != nil {
		return err
	}
	if !maps.Equal(live.GetLabels(), object.GetLabels()) || len(live.GetOwnerReferences()) > 0 {
		return fmt.Errorf("S7 %s was changed", object.GetName())
	}
	return r.quiet.Delete(ctx, live)
}
