package migrationsteps

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/nodemarks"
)

// The actions of the way back to NVIDIA's operator.
const (
	// ActionEnd deletes a Deployment and waits until its pods have ended.
	ActionEnd Action = "end"
	// ActionUnhold removes the operator's finalizer from a policy.
	ActionUnhold Action = "unhold"
	// ActionSelect gives a node the deploy label by which NVIDIA's DaemonSet selects it.
	ActionSelect Action = "select"
	// ActionOrphan deletes a DaemonSet without its pods, ActionMove gives a pod the labels by which NVIDIA's DaemonSet
	// selects it, and ActionCreate creates that DaemonSet.
	ActionOrphan Action = "orphan"
	ActionMove   Action = "move"
	ActionCreate Action = "create"
	// ActionUnmark removes what this operator has written on an object, such as a node or a pod.
	ActionUnmark Action = "unmark"
)

// restricting are the kinds of this operator's installers that would restrict NVIDIA's operator, whose account and pods
// have the same name and labels, and that its chart does not have. A policy without a binding has no effect, so that
// nothing is refused for the lack of the other.
var restricting = []string{
	"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "NetworkPolicy", "PodDisruptionBudget",
}

// Back is what the way back depends on.
type Back struct {
	*Cluster
	namespace string
	nodes     []corev1.Node
	pods      []corev1.Pod
	sets      []appsv1.DaemonSet
	revisions []appsv1.ControllerRevision
}

// NewBack decodes the objects of a cluster. Pods, DaemonSets and their revisions are those of the operands' namespace.
func NewBack(c *Cluster) (*Back, error) {
	b := &Back{Cluster: c, namespace: c.operandNamespace()}
	for _, err := range []error{
		decode(c, "", kindNode, &b.nodes), decode(c, b.namespace, kindPod, &b.pods),
		decode(c, b.namespace, kindDaemonSet, &b.sets), decode(c, b.namespace, kindRevision, &b.revisions),
	} {
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

// decode adds the objects of a kind and a namespace to a list of their type.
func decode[T any](c *Cluster, namespace, kind string, into *[]T) error {
	for _, object := range c.ofKind(kind) {
		if object.GetNamespace() != namespace {
			continue
		}
		var one T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &one); err != nil {
			return fmt.Errorf("%s %s: %w", kind, object.GetName(), err)
		}
		*into = append(*into, one)
	}
	return nil
}

// operandNamespace returns the namespace of the operands: that of the policy's status, of this operator, or of a
// DaemonSet of an operand.
func (c *Cluster) operandNamespace() string {
	if policy := c.ActivePolicy(); policy != nil {
		if namespace, _, _ := unstructured.NestedString(policy.Object, "status", "namespace"); namespace != "" {
			return namespace
		}
	}
	theirs, own := c.deployments()
	for _, object := range append(own, theirs...) {
		return object.GetNamespace()
	}
	for _, object := range c.ofKind(kindDaemonSet) {
		if object.GetLabels()[labels.Operand] != "" {
			return object.GetNamespace()
		}
	}
	return ""
}

// Steps returns the steps before NVIDIA's operator is installed, in order: this operator is stopped, what only it
// handles is removed, and its DaemonSets are merged into those that NVIDIA's operator handles. Those that have been
// taken are left out.
func (b *Back) Steps() []Step {
	steps, _ := b.plan()
	return steps
}

// isInstallers reports whether an object that restricts accounts or pods is from an installer of this operator. The
// value of the label is the chart's nameOverride.
func (b *Back) isInstallers(object *unstructured.Unstructured) bool {
	name, namespace := object.GetName(), object.GetNamespace()
	return object.GetLabels()[labels.Name] != "" && (namespace == "" || namespace == b.namespace) &&
		(name == operatorName || strings.HasPrefix(name, operatorName+"-"))
}

// plan returns the steps, and what prevents them.
func (b *Back) plan() ([]Step, []Blocker) {
	var steps []Step
	_, own := b.deployments()
	for _, deployment := range own {
		steps = append(steps, step(ActionEnd, deployment))
	}
	for _, kind := range restricting {
		for _, object := range b.ofKind(kind) {
			if b.isInstallers(object) {
				steps = append(steps, step(ActionDelete, object))
			}
		}
	}
	for _, policy := range b.ofKind(kindPolicy) {
		if finalizers := policy.GetFinalizers(); slices.Contains(finalizers, labels.RemovalFinalizer) {
			left := slices.DeleteFunc(finalizers, func(name string) bool { return name == labels.RemovalFinalizer })
			steps = append(steps, patched(ActionUnhold, policy, map[string]any{"metadata": map[string]any{
				"finalizers": left, "resourceVersion": policy.GetResourceVersion(),
			}}))
		}
	}
	merged, blockers := b.merge()
	return append(steps, merged...), blockers
}

// patched returns a step that patches an object.
func patched(action Action, object *unstructured.Unstructured, patch map[string]any) Step {
	s := step(action, object)
	s.Patch = patch
	return s
}

// object returns an object of a kind by its name in the operands' namespace, or without a namespace.
func (b *Back) object(kind, name string) *unstructured.Unstructured {
	for _, object := range b.ofKind(kind) {
		if object.GetName() == name && (object.GetNamespace() == b.namespace || object.GetNamespace() == "") {
			return object
		}
	}
	return nil
}

// node returns a node by its name; nil for none.
func (b *Back) node(name string) *corev1.Node {
	at := slices.IndexFunc(b.nodes, func(node corev1.Node) bool { return node.Name == name })
	if at < 0 {
		return nil
	}
	return &b.nodes[at]
}

// Report computes what the way back would change, and what blocks it.
func (b *Back) Report() *Report {
	steps, blockers := b.plan()
	r := &Report{
		Operators: []Operator{}, Blockers: []Blocker{}, Operands: b.effects(), Notes: b.notes(),
		Stop: append([]Step{}, steps...), Finish: b.knownFinish(),
	}
	_, own := b.deployments()
	for _, deployment := range own {
		r.Operators = append(r.Operators, describeOperator(deployment))
	}
	for i := range b.nodes {
		if b.nodes[i].Labels[labels.GPUPresent] == labels.True {
			r.Nodes++
		}
	}
	if policy := b.ActivePolicy(); policy != nil {
		r.Policy = policy.GetName()
	}
	for _, driver := range b.ofKind(kindDriver) {
		r.Drivers = append(r.Drivers, driver.GetName())
	}
	r.Blockers = append(append(r.Blockers, b.blockers()...), blockers...)
	return r
}

// blockers returns what prevents the way back, but for the DaemonSets.
func (b *Back) blockers() []Blocker {
	var found []Blocker
	block := func(cause, remedy string) { found = append(found, Blocker{Cause: cause, Remedy: remedy}) }
	theirs, own := b.deployments()
	for _, deployment := range theirs {
		if describeOperator(deployment).Replicas > 0 {
			block(fmt.Sprintf("Deployment %s in namespace %s already runs NVIDIA's operator", deployment.GetName(),
				deployment.GetNamespace()), "scale it to 0, or, if kubectl gpu migrate --back has succeeded before, run "+
				"kubectl gpu migrate --back --finish")
		}
	}
	for _, deployment := range own {
		if operator := describeOperator(deployment); operator.Way == WayOLM {
			found = append(found, blockedByOLM(&operator))
		}
	}
	for _, policy := range b.ofKind(kindPolicy) {
		if policy.GetDeletionTimestamp() != nil {
			block("ClusterPolicy "+policy.GetName()+" is being deleted, and without the finalizer all operands would end "+
				"at once", "wait until this operator has removed them, then install NVIDIA's as on a new cluster")
		}
	}
	for i := range b.nodes {
		switch node := &b.nodes[i]; {
		case !nodemarks.Remove(nil, node).Uncordon:
		case node.Annotations[labels.MIGDrain] != "":
			block("node "+node.Name+" is drained for a MIG layout", "wait until it is uncordoned, or set "+
				"spec.migManager.config.onBusy to hold")
		default:
			block("the driver of node "+node.Name+" is being upgraded", "wait until kubectl get clusterpolicy shows "+
				"no node in column UPGRADING")
		}
	}
	return append(found, b.blockedByDriver()...)
}

// blockedByDriver returns which settings of the driver prevent the way back.
func (b *Back) blockedByDriver() []Blocker {
	policy := b.ActivePolicy()
	if policy == nil || len(b.podsOf(driverOperand)) == 0 {
		return nil
	}
	var found []Blocker
	set := func(cause, remedy string, path ...string) {
		if value, _, _ := unstructured.NestedBool(policy.Object, append([]string{"spec", driverOperand}, path...)...); value {
			found = append(found, Blocker{Cause: cause, Remedy: fmt.Sprintf(remedy, policy.GetName())})
		}
	}
	set("driver.upgradePolicy.autoUpgrade is true, and NVIDIA's operator would upgrade the driver of each node, as its "+
		"DaemonSet changes", `kubectl patch clusterpolicy %s --type=merge --patch `+
		`'{"spec":{"driver":{"upgradePolicy":{"autoUpgrade":false}}}}', and set the same in the values of NVIDIA's chart`,
		"upgradePolicy", "autoUpgrade")
	set("NVIDIADriver objects declare the drivers: NVIDIA's operator would create a DaemonSet for each, under a name "+
		"with a hash that only it computes, and replace the driver of each node", `declare one driver in the policy `+
		`first: kubectl patch clusterpolicy %s --type=merge --patch `+
		`'{"spec":{"driver":{"useNvidiaDriverCRD":false,"upgradePolicy":{"autoUpgrade":false}}}}', `+
		`with driver.version and the other fields of these objects; running drivers stay`, "useNvidiaDriverCRD")
	set("driver.usePrecompiled is true: NVIDIA's operator has a DaemonSet for each kernel, all with the same selector, "+
		"so that each would take the pods of the others and end them", "end the GPU work, delete ClusterPolicy %s, and "+
		"install NVIDIA's operator as on a new cluster", "usePrecompiled")
	return found
}

// effects returns what happens to the pods of each operand.
func (b *Back) effects() []Operand {
	operands := []Operand{}
	for _, p := range places() {
		pods := b.podsOf(p.operand)
		if len(pods) == 0 {
			continue
		}
		effect := EffectReplaced
		if p.operand == driverOperand {
			effect = EffectKept
		}
		operands = append(operands, Operand{DaemonSet: p.name, Pods: int64(len(pods)), Effect: effect})
	}
	for i := range b.sets {
		ds := &b.sets[i]
		if labels.IsApplied(ds) && !slices.ContainsFunc(places(), func(p place) bool {
			return p.operand == ds.Labels[labels.Operand]
		}) {
			operands = append(operands, Operand{
				DaemonSet: ds.Name, Pods: int64(ds.Status.CurrentNumberScheduled), Effect: EffectRemoved,
				Because: "NVIDIA's operator has none; kubectl gpu migrate --back --finish removes it",
			})
		}
	}
	slices.SortStableFunc(operands, func(a, b Operand) int { return cmp.Compare(a.DaemonSet, b.DaemonSet) })
	return operands
}
