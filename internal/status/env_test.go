package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/nvidiadriver"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

var now = time.Unix(1_000_000, 0)

const (
	templateDigest = "nvidia.com/gpu-operator.template-digest"
	operandLabel   = "nvidia.com/gpu-operator.operand"
	namespace      = "gpu-operator"
)

// snapshot has the objects of an env.
type snapshot struct {
	Nodes         []testNode
	Pods          map[string]assess.Pods
	DaemonSets    map[string]*appsv1.DaemonSet
	AnyDiscovered bool
	Undiscovered  map[string]bool
}

// testNode is a node with its facts.
type testNode struct {
	Facts  nodeinfo.Facts
	Object *corev1.Node
}

// env is a cluster that the test cases change.
type env struct {
	t         testing.TB
	spec      v1.ClusterPolicySpec
	snapshot  snapshot
	catalogue operand.Catalogue
	applied   map[operand.Name]ApplyResult
	// contents of the referenced objects; nil if they were not read.
	contents map[operand.Reference]operand.Content
	// drivers are the NVIDIADriver objects, if the spec uses them.
	drivers        []v1alpha1.NVIDIADriver
	createFailures map[string]assess.PodFailure
	// upgrades is the report of driver upgrades; nil before the first.
	upgrades *upgrade.Report
	err      error
}

// newEnv returns a cluster of GPU nodes on which all operands are ready.
func newEnv(tb testing.TB, nodes int) *env {
	tb.Helper()
	catalogue, err := operands.Catalogue()
	if err != nil {
		tb.Fatal(err)
	}
	e := &env{
		t: tb, catalogue: catalogue, applied: map[operand.Name]ApplyResult{},
		snapshot: snapshot{
			Pods:          map[string]assess.Pods{},
			DaemonSets:    map[string]*appsv1.DaemonSet{},
			AnyDiscovered: nodes > 0,
		},
	}
	for _, o := range catalogue {
		if len(o.Workloads) == 0 {
			continue
		}
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
			Name:        string(o.Name),
			Labels:      map[string]string{operandLabel: string(o.Name)},
			Annotations: map[string]string{templateDigest: "now"},
		}}
		ds.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
		if o.UpdatesOnDelete {
			ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		}
		ds.Status.DesiredNumberScheduled, ds.Status.UpdatedNumberScheduled = int32(nodes), int32(nodes)
		if nodes > 0 {
			e.snapshot.DaemonSets[ds.Name] = ds
		}
	}
	for i := range nodes {
		e.addNode(fmt.Sprintf("node-%05d", i))
	}
	return e
}

func (e *env) addNode(name string) {
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"feature.node.kubernetes.io/pci-10de.present": "true", "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
			"feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
			"nvidia.com/gpu-operator.pool":                            "ubuntu24.04-amd64",
		}},
		Status: corev1.NodeStatus{
			NodeInfo:    corev1.NodeSystemInfo{Architecture: "amd64", ContainerRuntimeVersion: "containerd://2.2.1"},
			Allocatable: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	e.snapshot.Nodes = append(e.snapshot.Nodes, testNode{Facts: observe.Facts(object), Object: object})
	e.snapshot.Pods[name] = assess.Pods{}
	for operandName := range e.snapshot.DaemonSets {
		e.snapshot.Pods[name][operand.Name(operandName)] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: operandName + "-" + name[len(name)-5:], Namespace: namespace,
				Annotations:     map[string]string{templateDigest: "now"},
				OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: operandName, Controller: new(true)}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
			}},
		}
	}
}

// setLabel sets a label of a node.
func (e *env) setLabel(i int, key, value string) {
	e.snapshot.Nodes[i].Object.Labels[key] = value
	e.snapshot.Nodes[i].Facts = observe.Facts(e.snapshot.Nodes[i].Object)
}

// addUndiscovered adds a node without discovery labels, and the pod of node discovery there, if any.
func (e *env) addUndiscovered(pod *corev1.PodStatus) {
	const name = "cpu-1"
	if e.snapshot.Undiscovered == nil {
		e.snapshot.Undiscovered = map[string]bool{}
	}
	e.snapshot.Undiscovered[name] = true
	if pod != nil {
		e.snapshot.Pods[name] = assess.Pods{"node-discovery": &corev1.Pod{Status: *pod}}
	}
}

// addDiscoveryDaemonSet adds the DaemonSet of node discovery, with one ready pod.
func (e *env) addDiscoveryDaemonSet(desired int32) {
	e.snapshot.DaemonSets["nvidia-node-discovery"] = &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:   "nvidia-node-discovery",
			Labels: map[string]string{operandLabel: "node-discovery"},
		},
		Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: desired, UpdatedNumberScheduled: desired, NumberReady: 1},
	}
}

// removeAdmissionPolicies removes the admission policies from the cluster.
func (e *env) removeAdmissionPolicies() { e.contents = map[operand.Reference]operand.Content{} }

const admissionPolicyMissing = "node discovery is disabled because ValidatingAdmissionPolicyBinding " +
	"gpu-operator-node-agents is missing: " +
	"apply config/admission, or use Node Feature Discovery"

// crashing is a pod of node discovery whose init container fails.
var crashing = &corev1.PodStatus{
	Phase:      corev1.PodPending,
	Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
	InitContainerStatuses: []corev1.ContainerStatus{{
		Name:  "node-discovery-once",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 1, Message: "no os-release",
		}},
	}},
}

func (e *env) pod(i int, name operand.Name) *corev1.Pod {
	return e.snapshot.Pods[e.snapshot.Nodes[i].Facts.Name][name]
}

func (e *env) failPod(i int, name operand.Name, message string) {
	pod := e.pod(i, name)
	pod.Status.Conditions[1].Status = corev1.ConditionFalse
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:  "main",
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: message}},
	}}
}

func (e *env) startPod(i int, name operand.Name) {
	pod := e.pod(i, name)
	pod.Status.Conditions[1].Status = corev1.ConditionFalse
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
	}
}

func (e *env) input() Input {
	var facts []nodeinfo.Facts
	for _, node := range e.snapshot.Nodes {
		facts = append(facts, node.Facts)
	}
	in := operand.Input{
		Spec:          effective.Of(e.spec),
		Namespace:     namespace,
		OperatorImage: "example.com/gpu-operator:v1",
		Contents:      e.contents,
	}
	if in.UsesNVIDIADrivers() {
		in.NVIDIADrivers = nvidiadriver.Declared(e.spec, e.drivers)
	}
	decisions := plan.Decide(e.catalogue, in)
	view := fleet.View{Hydrated: true, AnyDiscovered: e.snapshot.AnyDiscovered, Upgrades: e.upgrades}
	for i := range e.snapshot.Nodes {
		view.Nodes = append(view.Nodes, e.entry(decisions, i))
	}
	for name := range e.snapshot.Undiscovered {
		view.Undiscovered = append(view.Undiscovered, &fleet.Entry{
			Facts: nodeinfo.Facts{Name: name}, Discovering: assess.DiscoveryOperands(e.catalogue, e.snapshot.Pods[name], now),
		})
	}
	return Input{
		Namespace: namespace, View: view, DaemonSets: e.snapshot.DaemonSets, Applied: e.applied, Err: e.err,
		Plan: plan.Compute(decisions, nil, facts),
	}
}

// assessInput returns the input of the assessment of a node.
func (e *env) assessInput(decisions *plan.Decisions, i int) assess.Input {
	node := e.snapshot.Nodes[i]
	in := assess.Input{
		NodePlan: decisions.ForNode(node.Facts), Node: node.Object, Pods: e.snapshot.Pods[node.Facts.Name],
		Stack: assess.Stack{DaemonSets: e.snapshot.DaemonSets, CreateFailures: e.createFailures}, Now: now,
	}
	in.Previous = assess.ReadySinceOf(assess.GPUReadyCondition(node.Object))
	return in
}

// entry returns the entry that the node controller would store.
func (e *env) entry(decisions *plan.Decisions, i int) *fleet.Entry {
	in := e.assessInput(decisions, i)
	found := assess.Node(in)
	entry := &fleet.Entry{
		Facts:        in.NodePlan.Facts,
		BasisVersion: 1,
		Latest:       found,
		NodePool:     in.NodePlan.NodePool,
		DriverPool:   in.NodePlan.Facts.Pool,
	}
	if entry.DriverPool == "" {
		entry.DriverPool = in.NodePlan.Pool.Name
	}
	entry.Report, _ = entry.Report.Next(found, assess.DefaultDwell())
	return entry
}

func newPolicy(spec v1.ClusterPolicySpec) *v1.ClusterPolicy {
	return &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cp", Generation: 7}, Spec: spec}
}

func (e *env) status(before ...v1.ClusterPolicyStatus) v1.ClusterPolicyStatus {
	policy := newPolicy(e.spec)
	for _, status := range before {
		policy.Status = status
	}
	return Compute(policy, e.input())
}

// conditionsOf returns the status and reason of each condition, without those about fields of the spec, and without
// AuxiliaryReady if it is True.
func conditionsOf(status v1.ClusterPolicyStatus) map[string]string {
	found := map[string]string{}
	for _, c := range status.Conditions {
		found[c.Type] = string(c.Status) + " " + c.Reason
	}
	delete(found, v1.ConditionUnsupportedFields)
	delete(found, v1.ConditionDeprecatedFields)
	if strings.HasPrefix(found[v1.ConditionAuxiliaryReady], "True ") {
		delete(found, v1.ConditionAuxiliaryReady)
	}
	return found
}

// notReady are the conditions of a policy that is not ready for this reason; the flags are True.
func notReady(reason string, flags ...string) map[string]string {
	want := map[string]string{
		"Ready": "False " + reason, "Progressing": "False None", "Degraded": "False None", "Error": "True " + reason,
	}
	for _, flag := range flags {
		want[flag] = "True " + reason
	}
	return want
}

// isReady are the conditions of a ready policy.
func isReady(reason string) map[string]string {
	return map[string]string{
		"Ready":       "True " + reason,
		"Progressing": "False None",
		"Degraded":    "False None",
		"Error":       "False " + reason,
	}
}

func ready(status v1.ClusterPolicyStatus) metav1.Condition {
	return condition(status, v1.ConditionReady)
}

func condition(status v1.ClusterPolicyStatus, conditionType string) metav1.Condition {
	for _, c := range status.Conditions {
		if c.Type == conditionType {
			return c
		}
	}
	return metav1.Condition{}
}

func operandOf(t *testing.T, status v1.ClusterPolicyStatus, name operand.Name) v1.OperandStatus {
	t.Helper()
	for _, o := range status.Operands {
		if o.Name == string(name) {
			return o
		}
	}
	t.Fatalf("%s is not in the status", name)
	return v1.OperandStatus{}
}

// withValue sets the value of one of the conditions.
func withValue(all map[string]string, conditionType, value string) map[string]string {
	all[conditionType] = value
	return all
}

// setGPUReady sets the condition GPUReady of a node, with a transition that long ago.
func (e *env) setGPUReady(i int, status corev1.ConditionStatus, ago time.Duration) {
	node := &e.snapshot.Nodes[i].Object.Status
	node.Conditions = append(node.Conditions, corev1.NodeCondition{
		Type: labels.ConditionGPUReady, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-ago)),
	})
}

// setPodReadySince sets when the condition Ready of a pod on the first node has changed.
func (e *env) setPodReadySince(name operand.Name, ago time.Duration) {
	e.pod(0, name).Status.Conditions[1].LastTransitionTime = metav1.NewTime(now.Add(-ago))
}

// setRunning makes the container of a ready pod on the first node run for a minute.
func (e *env) setRunning(name operand.Name, container string) {
	since := metav1.NewTime(now.Add(-time.Minute))
	pod := e.pod(0, name)
	e.snapshot.DaemonSets[string(name)].Spec.Template.Spec.Containers = []corev1.Container{
		{Name: container},
		{Name: "other"},
	}
	for j := range pod.Status.Conditions {
		if pod.Status.Conditions[j].Type == corev1.PodReady {
			pod.Status.Conditions[j].LastTransitionTime = since
		}
	}
}

// withoutHandler makes the container runtime of the first node have no handler for a pod's RuntimeClass.
func (e *env) withoutHandler(name operand.Name) {
	pod := e.pod(0, name)
	pod.Spec.RuntimeClassName = new("nvidia")
	pod.Status.Phase = corev1.PodPending
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse},
	}
}

// setSandboxCreated gives a pod on the first node the RuntimeClass, and a sandbox that was created that long ago.
func (e *env) setSandboxCreated(name operand.Name, ago time.Duration) {
	pod := e.pod(0, name)
	pod.Spec.RuntimeClassName = new("nvidia")
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type:               corev1.PodReadyToStartContainers,
		Status:             corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now.Add(-ago)),
	})
}
