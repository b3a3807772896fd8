package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

func inputRows() []row {
	return []row{
		{
			id: "E1", what: "each field of the schema with each of its values, empty, and without its block; then reverted",
			sample: 1, points: schemaFields,
		},
		{
			id: "E2", what: "values of known types that are invalid or impossible; then reverted", sample: 1,
			points: badValues(),
		},
		elsewhere("E3", "a random walk through specs", "TestRandomSpecs (test/integration): 300 specs"),
		{id: "E4", what: "an invalid spec, then the last valid one: no pod is deleted", sample: 1, points: fixed(
			atRest("invalid", invalidAndBack, options{}),
		)},
		{id: "E5", what: "a second policy; the policy is deleted and immediately re-created", sample: 1, points: fixed(
			atRest("second", secondPolicy, options{counts: true}),
			atRest("again", againAtOnce, options{counts: true, mayGo: everything}),
		)},
		{id: "E6", what: "a policy with 3,000 variables", sample: 1, points: fixed(
			point{
				name: "rest/env", workload: rest, options: options{counts: true, mayGo: ofOperand("device-plugin")},
				faults: strikes(hugePolicy),
			},
		)},
		elsewhere("E7", "hostile strings in paths, commands and names",
			"FuzzSpec (test/specgen), TestAPI (test/integration)"),
		elsewhere("E8", "unknown fields", "TestAPI (test/integration)"),
		elsewhere("E9", "a referenced ConfigMap or Secret is created, changed and deleted",
			"TestReferencedObjects (test/integration)"),
		elsewhere("E15", "another content of the device plugin's configuration, with which it crashes later",
			"TestAPluginThatCrashesLaterStops (internal/controller/node)"),
		elsewhere("E10", "a stored object that Go cannot decode, or not in time",
			"TestUndecodablePolicies, TestUndecodableNVIDIADrivers (test/integration), TestWhatIsAdmittedIsDecoded "+
				"(test/specgen)"),
		elsewhere("E11", "what is admitted and can never work, and keys without effect",
			"TestAPI (test/integration), TestNoVariableIsSilent, TestNoLabelIsSilent, TestNoFileIsSilent, "+
				"TestNoMarkOfAPodIsSilent (test/dropin), TestFieldsThatCannotWork (internal/policy/fieldnotes), "+
				"TestInvalidValuesAreRefused (test/install)"),
		elsewhere("E12", "previews say what the operator applies",
			"TestPreviewsAreWhatIsApplied (test/previews), TestPlanComesTrue (test/upgrades)"),
		elsewhere("E13", "numbers of Nodes, and texts of ConfigMaps, that are as large as they can be",
			"TestImplausibleCounts (internal/node/readiness), TestConfigMapsThatGrow (internal/cluster/observe)"),
		elsewhere("E14", "what is admitted and no pod can have",
			"TestPodRulesAgreeWithTheAPIServer, TestRenderedDaemonSetsAreAccepted (test/integration), "+
				"TestImpossiblePartsOfPodsAreRefused (test/specgen)"),
	}
}

// schemaFields returns a point for each block of the spec, which tries all fields below it.
func schemaFields(context.Context, *campaign) ([]point, error) {
	fields, err := specgen.Fields()
	if err != nil {
		return nil, err
	}
	blocks := map[string][]specgen.Field{}
	for _, field := range fields {
		blocks[field.Path[0]] = append(blocks[field.Path[0]], field)
	}
	var names []string
	for name := range blocks {
		names = append(names, name)
	}
	slices.Sort(names)
	var points []point
	for _, name := range names {
		points = append(points, point{
			name: "rest/" + name, workload: rest, faults: strikes(tryFields(name, blocks[name])),
			// Fields of upgradePolicy, beside an edit of the driver that is about to be reverted, upgrade drivers.
			options: options{counts: true, mayGo: everything, newDrivers: name == "driver"},
		})
	}
	return points, nil
}

// tryFields sets each field of the policy to each value; then restores the spec.
func tryFields(block string, fields []specgen.Field) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		policy, err := r.policy(ctx)
		if err != nil {
			return err
		}
		specs := []map[string]any{{}, {block: map[string]any{}}, {block: nil}}
		for _, field := range fields {
			for _, value := range field.Values() {
				specs = append(specs, field.Spec(value))
			}
		}
		taken := 0
		for _, spec := range specs {
			took, err := r.trySpec(ctx, spec)
			if err != nil {
				return fmt.Errorf("spec %v: %w", spec, err)
			}
			if took {
				taken++
			}
		}
		if taken == 0 {
			return fmt.Errorf("none of %d specs was accepted", len(specs))
		}
		if err := respec(
			ctx, r, func(spec *v1.ClusterPolicySpec) { policy.Spec.DeepCopyInto(spec) },
		); err != nil || block != "driver" {
			return err
		}
		return r.restartUsers(ctx)
	}
}

// restartUsers does what k8s-driver-manager does after a driver was removed and reinstalled, as by driver.enabled,
// and what the nodes here do not simulate: it restarts the pods that use the driver. It also restarts the driver,
// which may be of an intermediate spec, as its administrator would. TestStagesFollowTheMarkers (test/integration) has
// a node that simulates it.
func (r *run) restartUsers(ctx context.Context) error {
	if err := r.awaitObserved(ctx, convergeTime); err != nil {
		return err
	}
	pods := &corev1.PodList{}
	if err := r.quiet.List(ctx, pods, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range pods.Items {
		if pods.Items[i].Labels[labels.Operand] == "node-discovery" {
			continue
		}
		if err := r.quiet.Delete(ctx, &pods.Items[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete pod %s: %w", pods.Items[i].Name, err)
		}
	}
	return nil
}

// trySpec replaces the spec, and waits until the status has observed it. The API server may refuse it.
func (r *run) trySpec(ctx context.Context, spec map[string]any) (taken bool, err error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1.ClusterPolicyKind)
	object.SetName(policyName)
	err = edit(ctx, r.quiet, object, func(o *unstructured.Unstructured) { o.Object["spec"] = spec })
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, r.awaitObserved(ctx, truthTime)
}

// awaitObserved waits until the status has observed the spec.
func (r *run) awaitObserved(ctx context.Context, limit time.Duration) error {
	return r.awaitWithin(ctx, limit, "the status to observe the spec", func() error {
		policy, err := r.policy(ctx)
		if err != nil {
			return err
		}
		if policy.Status.ObservedGeneration != policy.Generation {
			return fmt.Errorf("it has observed generation %d of %d", policy.Status.ObservedGeneration, policy.Generation)
		}
		return nil
	})
}

func badValues() func(context.Context, *campaign) ([]point, error) {
	block := func(name string, fields map[string]any) map[string]any { return map[string]any{name: fields} }
	env := func(list ...any) map[string]any { return block("devicePlugin", map[string]any{"env": list}) }
	values := map[string][]map[string]any{
		"image": {
			block("devicePlugin", map[string]any{"image": ":::"}), block("devicePlugin",
				map[string]any{"version": strings.Repeat("9", 300)}),
			block("driver", map[string]any{"repository": "../../etc"}), block("driver", map[string]any{"image": "a b"}),
		},
		"env": {
			env(map[string]any{"name": "A", "value": "1"},
				map[string]any{"name": "A", "value": "2"}), env(map[string]any{"value": "1"}),
			env(map[string]any{"name": "=", "value": "1"}), env(map[string]any{"name": "A", "value": "$(B)\n\u202e"}),
		},
		"resources": {
			block("devicePlugin", map[string]any{"resources": map[string]any{"limits": map[string]any{"cpu": "lots"}}}),
			block("devicePlugin", map[string]any{"resources": map[string]any{"limits": map[string]any{"cpu": "-1"}}}),
			block("devicePlugin", map[string]any{
				"resources": map[string]any{"limits": map[string]any{"cpu": "1"}, "requests": map[string]any{"cpu": "2"}},
			}),
		},
		"scheduling": {
			block("daemonsets", map[string]any{"priorityClassName": "no-such-class"}),
			block("daemonsets", map[string]any{"tolerations": []any{map[string]any{"operator": "Sometimes"}}}),
			block("daemonsets",
				map[string]any{"tolerations": []any{map[string]any{"key": "a", "operator": "Exists", "value": "b"}}}),
		},
		"rolling": {
			rolling("0"), rolling("0%"), rolling("101%"), rolling("-1"), rolling("many"), rolling("1000"),
		},
	}
	var points []point
	for name, specs := range values {
		points = append(points, point{
			name: "rest/" + name, workload: rest, options: options{counts: true, mayGo: everything},
			faults: strikes(func(ctx context.Context, r *run) error {
				policy, err := r.policy(ctx)
				if err != nil {
					return err
				}
				for _, spec := range specs {
					if _, err := r.trySpec(ctx, spec); err != nil {
						return fmt.Errorf("spec %v: %w", spec, err)
					}
				}
				return respec(ctx, r, func(spec *v1.ClusterPolicySpec) { policy.Spec.DeepCopyInto(spec) })
			}),
		})
	}
	slices.SortFunc(points, func(a, b point) int { return strings.Compare(a.name, b.name) })
	return fixed(points...)
}

func rolling(unavailable string) map[string]any {
	return map[string]any{"daemonsets": map[string]any{"rollingUpdate": map[string]any{"maxUnavailable": unavailable}}}
}

// invalidAndBack sets a variable of the driver that the operator reserves.
func invalidAndBack(ctx context.Context, r *run) error {
	policy, err := r.policy(ctx)
	if err != nil {
		return err
	}
	invalid := policy.DeepCopy()
	invalid.Spec.Driver.Env = append(invalid.Spec.Driver.Env, v1.EnvVar{Name: "POD_UID", Value: "a"})
	if err := respec(ctx, r, func(spec *v1.ClusterPolicySpec) { invalid.Spec.DeepCopyInto(spec) }); err != nil {
		return err
	}
	if err := r.awaitWithin(ctx, truthTime, "the status to refuse the spec", func() error {
		policy, err := r.policy(ctx)
		if err != nil {
			return err
		}
		if policy.Status.ObservedGeneration != policy.Generation || policy.Status.State == v1.StateReady {
			return fmt.Errorf("L6 it is %s for generation %d of %d", policy.Status.State, policy.Status.ObservedGeneration,
				policy.Generation)
		}
		return nil
	}); err != nil {
		return err
	}
	return respec(ctx, r, func(spec *v1.ClusterPolicySpec) { policy.Spec.DeepCopyInto(spec) })
}

// secondPolicy is ignored, and its status reports that.
func secondPolicy(ctx context.Context, r *run) error {
	second, err := cluster.SamplePolicy()
	if err != nil {
		return err
	}
	second.Name = "second"
	if err := r.quiet.Create(ctx, second); err != nil {
		return err
	}
	if err := r.awaitWithin(ctx, truthTime, "the second policy to be ignored", func() error {
		if err := r.quiet.Get(ctx, client.ObjectKeyFromObject(second), second); err != nil {
			return err
		}
		if second.Status.State != v1.StateIgnored {
			return fmt.Errorf("it is %q", second.Status.State)
		}
		return nil
	}); err != nil {
		return err
	}
	return r.quiet.Delete(ctx, second)
}

// againAtOnce re-creates a policy immediately after its deletion.
func againAtOnce(ctx context.Context, r *run) error {
	policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: policyName}}
	if err := r.quiet.Delete(ctx, policy, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		return err
	}
	return r.awaitWithin(ctx, convergeTime, "the policy to be removed and re-created", func() error {
		again, err := cluster.SamplePolicy()
		if err != nil {
			return err
		}
		return r.quiet.Create(ctx, again)
	})
}

// hugePolicy is refused or reconciled; then the spec is restored.
func hugePolicy(ctx context.Context, r *run) error {
	policy, err := r.policy(ctx)
	if err != nil {
		return err
	}
	var env []any
	for i := range 3000 {
		env = append(env, map[string]any{"name": fmt.Sprintf("VARIABLE_%d", i), "value": strings.Repeat("x", 100)})
	}
	if _, err := r.trySpec(ctx, map[string]any{"devicePlugin": map[string]any{"env": env}}); err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			return err
		}
	}
	return errors.Join(pauseFor(ctx, time.Second),
		respec(ctx, r, func(spec *v1.ClusterPolicySpec) { policy.Spec.DeepCopyInto(spec) }))
}
