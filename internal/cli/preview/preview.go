package preview

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/drift"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/manifest"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/rollout"
)

// Preview is what the operator would do with a policy. Its JSON is the output of kubectl gpu plan -o json.
type Preview struct {
	// Policy is the name of the ClusterPolicy.
	Policy string `json:"policy"`
	// Paused: spec.paused is true, so that the operator would only report.
	Paused bool `json:"paused"`
	// Invalid are the operands, node pools and NVIDIADrivers that the operator would refuse, and Refused the objects of
	// the edit that the API server would refuse. Notes have the reasons.
	Invalid []string `json:"invalid,omitempty"`
	Refused []string `json:"refused,omitempty"`
	// Notes are sentences about the spec: fields without effect, doubtful values, operands that are not installed.
	Notes []string `json:"notes"`
	// Spec has the fields of the policy that change, with the defaults of this release.
	Spec []drift.Difference `json:"spec,omitempty"`
	// Losing are the nodes on which the driver or the device plugin runs now and would not any more, sorted: pods there
	// could no longer use GPUs.
	Losing []string `json:"losing,omitempty"`
	// Replaced are the pods of operands that are replaced or end at once, without those of driver upgrades.
	Replaced Replaced `json:"replaced"`
	// Objects that would be written or deleted, in the order of the pass. Unchanged counts the others.
	Objects   []Change `json:"objects"`
	Unchanged int      `json:"unchanged"`
	// Upgrades of drivers.
	Upgrades Upgrades `json:"upgrades"`
}

// Replaced counts pods that a change of their DaemonSet ends, and the nodes that they are on.
type Replaced struct {
	Pods  int `json:"pods"`
	Nodes int `json:"nodes"`
}

// Differs reports whether the policy, or what the operator does, would change.
func (p *Preview) Differs() bool {
	return len(p.Spec) > 0 || len(p.Objects) > 0 || p.Upgrades.Happen()
}

// Disturbs reports whether nodes would be upgraded.
func (p *Preview) Disturbs() bool { return !p.Paused && p.Upgrades.Happen() }

// Edit is the edit of which a Preview is computed.
type Edit struct {
	// Policy is nil for the one in the cluster: then only another release of the operator changes anything.
	Policy *v1.ClusterPolicy
	// Named are objects that the policy may name, such as ConfigMaps. They replace those of the cluster with the same
	// name, as they are applied together with the policy.
	Named []manifest.Object
	// Drivers replace NVIDIADriver objects in the same way.
	Drivers []v1alpha1.NVIDIADriver
	// AtSource removes spec.global.registry, so that images are those at their source.
	AtSource bool
}

// input returns what the pass would decide from. ignored has a sentence for each variable of the operator that should
// replace an image and does not.
func (c *Cluster) input(catalogue operand.Catalogue, edit Edit) (in operand.Input, ignored []string) {
	variables := c.variables()
	in = operand.Input{
		Spec: effective.Of(edit.Policy.Spec), Namespace: c.Namespace, OperatorImage: c.operatorImage(),
		Proxy: operand.ProxyFromVariables(variables), AppliedSpec: c.appliedSpec(),
		OperatorMetrics: c.metricsEndpoint(), DriverToolkit: c.driverToolkit(), Optional: c.optional(),
		OpenShiftCluster: c.openShift(),
	}
	in.Images, ignored = image.FromVariables(catalogue.Images(), variables)
	if in.UsesNVIDIADrivers() {
		in.NVIDIADrivers = c.nvidiaDrivers(edit)
	}
	in.Contents = c.contents(catalogue, in, edit.Named)
	return in, ignored
}

// References returns the objects that the policy refers to.
func References(c *Cluster, edit Edit) ([]operand.Reference, error) {
	catalogue, err := operands.Catalogue()
	if err != nil {
		return nil, err
	}
	if edit, err = c.complete(edit); err != nil {
		return nil, err
	}
	in, _ := c.input(catalogue, edit)
	return catalogue.Uses(in), nil
}

// errNoPolicy: there is no policy to plan for.
var errNoPolicy = errors.New("the cluster has no ClusterPolicy: apply one, or give a file by --filename")

// complete returns the edit with a policy.
func (c *Cluster) complete(edit Edit) (Edit, error) {
	if edit.Policy == nil {
		edit.Policy = c.active()
	}
	if edit.Policy == nil {
		return edit, errNoPolicy
	}
	return edit, nil
}

// errInactive: the operator applies another policy.
var errInactive = errors.New("is the active ClusterPolicy, and a second one has no effect: give that one")

// Of computes the Preview of an edit. It fails if the operator would not apply the policy, or cannot render it.
func Of(c *Cluster, edit Edit, now time.Time) (*Preview, error) {
	p, err := passOf(c, edit, now)
	if err != nil {
		return nil, err
	}
	changes := changesOf(p.cluster, p.plan, p.moved, p.edit.Policy)
	preview := &Preview{
		Policy: p.edit.Policy.Name, Paused: p.plan.Input.Paused(), Invalid: Invalid(p.plan, p.facts),
		Notes: append(p.notes(), changes.notes()...), Objects: changes.changed, Unchanged: changes.unchanged,
		Replaced: p.cluster.replaced(changes.changed), Losing: p.cluster.losing(p.plan.Catalogue, &changes, p.nodes),
	}
	if preview.Spec, err = p.cluster.specDifferences(p.edit.Policy); err != nil {
		return nil, err
	}
	preview.Upgrades, err = upgradesOf(p.cluster, p.nodes, p.plan, changes.daemonSets, now)
	return preview, err
}

// planFor returns the plan of the pass for nodes.
func (c *Cluster) planFor(
	decisions *plan.Decisions, optional map[operand.OptionalKind]bool, nodes []*corev1.Node,
) plan.Plan {
	variants := rollout.Variants(c.daemonSets())
	facts := decisions.Relabel(factsOf(nodes), variants)
	standIns := decisions.StandIns(facts, variants)
	return plan.Compute(decisions, optional, append(facts, standIns...))
}
