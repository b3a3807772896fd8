package migrationsteps

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/internal/cli/preview"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/removal/cleanup"
)

// Way is how an operator was installed.
type Way string

// The ways.
const (
	WayHelm    Way = "Helm"
	WayOLM     Way = "OLM"
	WayKubectl Way = "kubectl"
)

// Operator is a Deployment of NVIDIA's operator.
type Operator struct {
	Deployment string   `json:"deployment"`
	Namespace  string   `json:"namespace"`
	Image      string   `json:"image"`
	Way        Way      `json:"way"`
	Release    *Release `json:"release,omitempty"`
	Replicas   int64    `json:"replicas"`
}

// Effect is what a migration means for the pods of a DaemonSet.
type Effect string

// The effects.
const (
	EffectKept     Effect = "kept"
	EffectReplaced Effect = "replaced once"
	// EffectOutdated: the pods stay until the driver of their node is upgraded.
	EffectOutdated Effect = "kept until their upgrade"
	EffectRemoved  Effect = "removed"
	EffectRefused  Effect = "not taken over"
)

// Operand is a DaemonSet of NVIDIA's operator, and what happens to its pods.
type Operand struct {
	DaemonSet string `json:"daemonSet"`
	Pods      int64  `json:"pods"`
	Effect    Effect `json:"effect"`
	// Because is the first field that differs, or why the DaemonSet is not taken over.
	Because string `json:"because,omitempty"`
}

// Blocker is what prevents a migration, with the remedy.
type Blocker struct {
	Cause  string `json:"cause"`
	Remedy string `json:"remedy"`
}

// Report is what a migration would change, in order. Its JSON is the output of kubectl gpu migrate --check -o json.
type Report struct {
	Operators []Operator `json:"operators"`
	Policy    string     `json:"policy,omitempty"`
	Drivers   []string   `json:"drivers,omitempty"`
	Nodes     int        `json:"nodes"`
	Blockers  []Blocker  `json:"blockers"`
	Stop      []Step     `json:"stop"`
	Operands  []Operand  `json:"operands"`
	// Notes are sentences about fields of the policy.
	Notes []string `json:"notes"`
	// Finish are the steps after the installation that are known now.
	Finish []Step `json:"finish"`
	// Discovery are the objects of Node Feature Discovery that NVIDIA's chart has installed. They stay.
	Discovery []cleanup.Object `json:"discovery,omitempty"`
}

// Facts are what a Report depends on.
type Facts struct {
	Cluster
	// Preview of the live policy; nil if it could not be computed, which Unreadable explains.
	Preview    *preview.Preview
	Unreadable string
	Notes      []string
}

// Of computes the Report.
func Of(f *Facts) *Report {
	r := &Report{
		Operators: []Operator{}, Blockers: []Blocker{}, Operands: []Operand{}, Notes: append([]string{}, f.Notes...),
		Stop: f.Stop(), Finish: f.Finish(),
	}
	theirs, _ := f.deployments()
	for _, deployment := range theirs {
		r.Operators = append(r.Operators, describeOperator(deployment))
	}
	for _, driver := range f.ofKind(kindDriver) {
		r.Drivers = append(r.Drivers, driver.GetName())
	}
	for _, node := range f.ofKind(kindNode) {
		if node.GetLabels()[labels.GPUPresent] == "true" {
			r.Nodes++
		}
	}
	if policies := f.ofKind(kindPolicy); len(policies) > 0 {
		r.Policy = policies[0].GetName()
	}
	if f.Preview != nil {
		r.Policy = f.Preview.Policy
		r.Notes = append(r.Notes, f.Preview.Notes...)
	}
	r.addOperands(f)
	r.addBlockers(f)
	r.Discovery = described(f.discovery())
	return r
}

func describeOperator(deployment *unstructured.Unstructured) Operator {
	found, _ := container(deployment)
	image, _ := found["image"].(string)
	replicas, set, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	if !set {
		replicas = 1
	}
	operator := Operator{
		Deployment: deployment.GetName(), Namespace: deployment.GetNamespace(), Image: image, Replicas: replicas,
		Way: WayKubectl,
	}
	if release := releaseOf(deployment); release != (Release{}) {
		operator.Way, operator.Release = WayHelm, &release
	}
	if deployment.GetLabels()[olmOwner] != "" {
		operator.Way = WayOLM
	}
	return operator
}

// discovery returns the objects of Node Feature Discovery that a release of NVIDIA's chart owns.
func (c *Cluster) discovery() []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(c.Objects), func(object *unstructured.Unstructured) bool {
		return !isDiscovery(object) || releaseOf(object) == (Release{})
	})
}

// addOperands adds what happens to the pods of each DaemonSet of NVIDIA's operator.
func (r *Report) addOperands(f *Facts) {
	changes := map[string]preview.Change{}
	if f.Preview != nil {
		for _, change := range f.Preview.Objects {
			if change.Kind == kindDaemonSet {
				changes[change.Name] = change
			}
		}
	}
	for _, daemonSet := range f.ofKind(kindDaemonSet) {
		if !isTheirs(daemonSet) {
			continue
		}
		pods, _, _ := unstructured.NestedInt64(daemonSet.Object, "status", "currentNumberScheduled")
		operand := Operand{DaemonSet: daemonSet.GetName(), Pods: pods, Effect: EffectKept}
		change, changed := changes[daemonSet.GetName()]
		if changed {
			operand.Effect, operand.Because = effectOf(change), cmp.Or(change.Message, change.Field)
		}
		r.Operands = append(r.Operands, operand)
	}
}

func effectOf(change preview.Change) Effect {
	switch {
	case change.Action == preview.Refuse:
		return EffectRefused
	case change.Action == preview.Delete && change.Pods == "":
		return EffectRemoved
	case change.Pods == preview.PodsRoll:
		return EffectReplaced
	case change.Pods == preview.PodsOutdated:
		return EffectOutdated
	}
	return EffectKept
}

func (r *Report) addBlockers(f *Facts) {
	block := func(cause, remedy string) { r.Blockers = append(r.Blockers, Blocker{Cause: cause, Remedy: remedy}) }
	if f.Unreadable != "" {
		block(f.Unreadable, "change the policy, as docs/migration.md describes")
	}
	if len(r.Operators) > 1 {
		block(fmt.Sprintf("%d Deployments run NVIDIA's operator", len(r.Operators)), "remove all but one")
	}
	policies := f.ofKind(kindPolicy)
	if len(policies) > 1 {
		block(fmt.Sprintf("there are %d ClusterPolicies, and only the oldest is active", len(policies)), "delete the others")
	}
	for _, policy := range policies {
		if policy.GetDeletionTimestamp() != nil {
			block("ClusterPolicy "+policy.GetName()+" is being deleted",
				"wait until NVIDIA's operator has deleted it, then install this one as on a new cluster")
		}
	}
	for i := range r.Operators {
		if operator := &r.Operators[i]; operator.Way == WayOLM {
			r.Blockers = append(r.Blockers, blockedByOLM(operator))
		}
	}
	if f.Preview != nil && len(f.Preview.Invalid) > 0 {
		block("the policy is invalid for "+strings.Join(f.Preview.Invalid, ", "), "see the notes, and change the policy")
	}
	r.blockByOwn(f, block)
}

// blockedByOLM returns the blocker for an operator that OLM has installed.
func blockedByOLM(operator *Operator) Blocker {
	return Blocker{
		Cause: "the Operator Lifecycle Manager keeps Deployment " + operator.Deployment + " running",
		Remedy: fmt.Sprintf("kubectl delete subscription,clusterserviceversion --all --namespace %s, if nothing else is "+
			"installed there: the policy and the operands stay", operator.Namespace),
	}
}

// blockByOwn adds a blocker if this operator is installed in another namespace: operands stay in theirs.
func (r *Report) blockByOwn(f *Facts, block func(cause, remedy string)) {
	_, own := f.deployments()
	for _, deployment := range own {
		for i := range r.Operators {
			if namespace := r.Operators[i].Namespace; namespace != deployment.GetNamespace() {
				block("this operator is installed in namespace "+deployment.GetNamespace()+
					", and the operands are in namespace "+namespace, "install it in namespace "+namespace)
			}
		}
	}
}

// FinishRefusal returns why the leftovers cannot be removed yet; empty if they can.
func (c *Cluster) FinishRefusal() string {
	theirs, own := c.deployments()
	if len(theirs) > 0 {
		return fmt.Sprintf("Deployment %s in namespace %s still runs NVIDIA's operator: run kubectl gpu migrate first",
			theirs[0].GetName(), theirs[0].GetNamespace())
	}
	if len(own) == 0 {
		return "this operator is not installed: install it first, as docs/migration.md describes"
	}
	var left []string
	for _, daemonSet := range c.ofKind(kindDaemonSet) {
		if isTheirs(daemonSet) {
			left = append(left, daemonSet.GetName())
		}
	}
	if len(left) > 0 {
		return "this operator has not taken over " + strings.Join(left, ", ") +
			" yet: wait until the ClusterPolicy is ready, or see its conditions"
	}
	return ""
}
