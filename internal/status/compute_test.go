package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/apply"
	"github.com/clusterpolicy/gpu-operator/internal/assess"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/observe"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operands"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
)

var now = time.Unix(1_000_000, 0)

const (
	templateDigest = "nvidia.com/gpu-operator.template-digest"
	operandLabel   = "nvidia.com/gpu-operator.operand"
	namespace      = "gpu-operator"
)

// snapshot is what a bed has, before it is assessed.
type snapshot struct {
	Nodes         []machine
	Pods          map[string]assess.Pods
	DaemonSets    map[string]*appsv1.DaemonSet
	AnyDiscovered bool
	Undiscovered  map[string]bool
}

// machine is a node with its facts.
type machine struct {
	Facts  nodeinfo.Facts
	Object *corev1.Node
}

// bed is a cluster, built up as the cases need it.
type bed struct {
	t         testing.TB
	spec      v1.ClusterPolicySpec
	snapshot  snapshot
	catalogue operand.Catalogue
	applied   map[operand.Name]Outcome
	// contents are nil where nobody has looked for what others make.
	contents       map[operand.Reference]operand.Content
	createFailures map[string]assess.CreateFailure
	err            error
}

// newBed is a cluster of GPU nodes on which everything works.
func newBed(tb testing.TB, nodes int) *bed {
	tb.Helper()
	catalogue, err := operands.Catalogue()
	if err != nil {
		tb.Fatal(err)
	}
	b := &bed{
		t: tb, catalogue: catalogue, applied: map[operand.Name]Outcome{},
		snapshot: snapshot{Pods: map[string]assess.Pods{}, DaemonSets: map[string]*appsv1.DaemonSet{}, AnyDiscovered: nodes > 0},
	}
	for _, o := range catalogue {
		if len(o.Workloads) == 0 {
			continue
		}
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
			Name: string(o.Name), Labels: map[string]string{operandLabel: string(o.Name)}, Annotations: map[string]string{templateDigest: "now"},
		}}
		ds.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
		if o.UpdatesOnDelete {
			ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		}
		ds.Status.DesiredNumberScheduled, ds.Status.UpdatedNumberScheduled = int32(nodes), int32(nodes)
		if nodes > 0 {
			b.snapshot.DaemonSets[ds.Name] = ds
		}
	}
	for i := range nodes {
		b.addNode(fmt.Sprintf("node-%05d", i))
	}
	return b
}

func (b *bed) addNode(name string) {
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"feature.node.kubernetes.io/pci-10de.present": "true", "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
			"feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04", "nvidia.com/gpu-operator.pool": "ubuntu24.04-amd64",
		}},
		Status: corev1.NodeStatus{
			NodeInfo:    corev1.NodeSystemInfo{Architecture: "amd64", ContainerRuntimeVersion: "containerd://2.2.1"},
			Allocatable: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	b.snapshot.Nodes = append(b.snapshot.Nodes, machine{Facts: observe.Facts(object), Object: object})
	b.snapshot.Pods[name] = assess.Pods{}
	for operandName := range b.snapshot.DaemonSets {
		b.snapshot.Pods[name][operand.Name(operandName)] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: operandName + "-" + name, Namespace: namespace, Annotations: map[string]string{templateDigest: "now"},
				OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: operandName, Controller: new(true)}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
			}},
		}
	}
}

// relabel changes the labels of a node.
func (b *bed) relabel(i int, key, value string) {
	b.snapshot.Nodes[i].Object.Labels[key] = value
	b.snapshot.Nodes[i].Facts = observe.Facts(b.snapshot.Nodes[i].Object)
}

// unknown adds a node that has not been discovered, and discovery's pod there, if any.
func (b *bed) unknown(pod *corev1.PodStatus) {
	const name = "cpu-1"
	if b.snapshot.Undiscovered == nil {
		b.snapshot.Undiscovered = map[string]bool{}
	}
	b.snapshot.Undiscovered[name] = true
	if pod != nil {
		b.snapshot.Pods[name] = assess.Pods{"node-discovery": &corev1.Pod{Status: *pod}}
	}
}

// discovery is the DaemonSet of node discovery, with one pod that is ready.
func (b *bed) discovery(desired int32) {
	b.snapshot.DaemonSets["nvidia-node-discovery"] = &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "nvidia-node-discovery", Labels: map[string]string{operandLabel: "node-discovery"}},
		Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: desired, UpdatedNumberScheduled: desired, NumberReady: 1},
	}
}

// unfenced is a cluster without the admission policies.
func (b *bed) unfenced() { b.contents = map[operand.Reference]operand.Content{} }

const unfenced = "node discovery is disabled because ValidatingAdmissionPolicyBinding gpu-operator-node-discovery is missing: " +
	"apply config/admission, or use Node Feature Discovery"

// crashing is a pod of node discovery whose first look fails.
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

func (b *bed) pod(i int, name operand.Name) *corev1.Pod {
	return b.snapshot.Pods[b.snapshot.Nodes[i].Facts.Name][name]
}

func (b *bed) fail(i int, name operand.Name, message string) {
	pod := b.pod(i, name)
	pod.Status.Conditions[1].Status = corev1.ConditionFalse
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: message}},
	}}
}

func (b *bed) start(i int, name operand.Name) {
	pod := b.pod(i, name)
	pod.Status.Conditions[1].Status = corev1.ConditionFalse
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

func (b *bed) pass() Pass {
	var facts []nodeinfo.Facts
	for _, node := range b.snapshot.Nodes {
		facts = append(facts, node.Facts)
	}
	in := operand.Input{Spec: effective.Of(b.spec), Namespace: namespace, HelperImage: "example.com/gpu-operator:v1", Contents: b.contents}
	decisions := plan.Decide(b.catalogue, in)
	view := fleet.View{Hydrated: true, AnyDiscovered: b.snapshot.AnyDiscovered}
	for i := range b.snapshot.Nodes {
		view.Nodes = append(view.Nodes, b.entry(decisions, i))
	}
	for name := range b.snapshot.Undiscovered {
		view.Undiscovered = append(view.Undiscovered, &fleet.Entry{
			Facts: nodeinfo.Facts{Name: name}, Discovering: assess.Undiscovered(b.catalogue, b.snapshot.Pods[name], now),
		})
	}
	return Pass{
		Namespace: namespace, Fleet: view, DaemonSets: b.snapshot.DaemonSets, Applied: b.applied, Err: b.err,
		Plan: plan.Compute(decisions, nil, facts),
	}
}

// input is what a node is assessed by.
func (b *bed) input(decisions *plan.Decisions, i int) assess.Input {
	node := b.snapshot.Nodes[i]
	in := assess.Input{
		Plan: decisions.ForNode(node.Facts), Node: node.Object, Pods: b.snapshot.Pods[node.Facts.Name],
		Stack: assess.Stack{DaemonSets: b.snapshot.DaemonSets, CreateFailures: b.createFailures}, Now: now,
	}
	in.Before = assess.StandingOf(assess.GPUReadyCondition(node.Object))
	return in
}

// entry is what the node controller would enter.
func (b *bed) entry(decisions *plan.Decisions, i int) *fleet.Entry {
	in := b.input(decisions, i)
	found := assess.Node(in)
	entry := &fleet.Entry{Facts: in.Plan.Facts, Basis: 1, Latest: found, NodePool: in.Plan.NodePool, DriverPool: in.Plan.Facts.Pool}
	if entry.DriverPool == "" {
		entry.DriverPool = in.Plan.Pool.Name
	}
	entry.Report, _ = entry.Report.Next(found, assess.DefaultDwell())
	return entry
}

func newPolicy(spec v1.ClusterPolicySpec) *v1.ClusterPolicy {
	return &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cp", Generation: 7}, Spec: spec}
}

func (b *bed) status(before ...v1.ClusterPolicyStatus) v1.ClusterPolicyStatus {
	policy := newPolicy(b.spec)
	for _, status := range before {
		policy.Status = status
	}
	return Compute(policy, b.pass())
}

// conditions are the values and reasons of the conditions of the verdict, in one text each; those of single
// fields of the spec are no part of it, nor are those that say that all is well with what GPUs can be used without.
func conditions(status v1.ClusterPolicyStatus) map[string]string {
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

func ready(status v1.ClusterPolicyStatus) metav1.Condition {
	return condition(status, v1.ConditionReady)
}

func condition(status v1.ClusterPolicyStatus, kind string) metav1.Condition {
	for _, c := range status.Conditions {
		if c.Type == kind {
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

// besides is the conditions with another value of one of them.
func besides(conditions map[string]string, kind, value string) map[string]string {
	conditions[kind] = value
	return conditions
}

func TestTheVerdictOnThePolicy(t *testing.T) {
	notReady := func(reason string, flags ...string) map[string]string {
		want := map[string]string{
			"Ready": "False " + reason, "Progressing": "False None", "Degraded": "False None", "Error": "True " + reason,
		}
		for _, flag := range flags {
			want[flag] = "True " + reason
		}
		return want
	}
	isReady := func(reason string) map[string]string {
		return map[string]string{"Ready": "True " + reason, "Progressing": "False None", "Degraded": "False None", "Error": "False " + reason}
	}
	conflict := Outcome{Err: fmt.Errorf("ConfigMap x: %w", apply.ErrConflict)}
	tests := map[string]struct {
		nodes   int
		change  func(*bed)
		want    map[string]string
		message string
	}{
		"all works": {nodes: 3, want: isReady("Reconciled"), message: "3 of 3 GPU nodes are ready"},
		"no node has a GPU": {
			change: func(b *bed) { b.snapshot.AnyDiscovered = true }, want: isReady("NoGPUNodes"), message: "no node has a GPU",
		},
		"a cluster without nodes": {
			want:    notReady("NodeDiscoveryMissing"),
			message: "no node has discovery labels, so that nobody knows which have GPUs: the cluster has no node",
		},
		"nothing was discovered by Node Feature Discovery": {
			change: func(b *bed) {
				b.spec.NodeDiscovery = &v1.NodeDiscoverySpec{Mode: v1.DiscoveryNFD}
				b.unknown(nil)
			},
			want: notReady("NodeDiscoveryMissing"),
			message: "no node has discovery labels, so that nobody knows which have GPUs: " +
				"install Node Feature Discovery, or set spec.nodeDiscovery.mode to auto",
		},
		"node discovery is off for want of its fence": {
			change: func(b *bed) { b.unfenced(); b.unknown(nil) }, want: notReady("NodeDiscoveryMissing"),
			message: "no node has discovery labels, so that nobody knows which have GPUs: " + unfenced,
		},
		"node discovery is off for want of its fence, and a cluster without nodes": {
			change: func(b *bed) { b.unfenced() }, want: notReady("NodeDiscoveryMissing"),
			message: "no node has discovery labels, so that nobody knows which have GPUs: the cluster has no node",
		},
		"node discovery is off for want of its fence, and others label the nodes": {
			nodes: 3, change: func(b *bed) { b.unfenced() }, want: isReady("Reconciled"), message: "3 of 3 GPU nodes are ready",
		},
		"node discovery alone is asked for, and its fence is missing": {
			nodes: 3, change: func(b *bed) {
				b.unfenced()
				b.spec.NodeDiscovery = &v1.NodeDiscoverySpec{Mode: v1.DiscoveryBuiltin}
			},
			want: notReady("AdmissionPolicyMissing", "Degraded"), message: "node-discovery: " + unfenced,
		},
		"node discovery is still looking": {
			change:  func(b *bed) { b.unknown(nil); b.discovery(2) },
			want:    notReady("OperandNotReady", "Progressing"),
			message: "node-discovery: has looked at 1/2 nodes",
		},
		"node discovery runs everywhere and finds nothing": {
			change: func(b *bed) { b.unknown(nil); b.discovery(1) },
			want:   notReady("NodeDiscoveryMissing"),
			message: "no node has discovery labels, so that nobody knows which have GPUs: " +
				"see the pods of DaemonSet nvidia-node-discovery",
		},
		"node discovery fails on a node that nobody knows": {
			nodes: 1, change: func(b *bed) { b.unknown(crashing); b.discovery(2) },
			want:    notReady("OperandFailed", "Degraded"),
			message: "node-discovery: fails on 1 of 2 nodes: cpu-1 (CrashLoopBackOff: no os-release)",
		},
		"node discovery still looks at a node that joins": {
			nodes: 1, change: func(b *bed) { b.unknown(nil); b.discovery(2) }, want: isReady("Reconciled"),
			message: "1 of 1 GPU nodes are ready",
		},
		"one node starts": {
			nodes: 3, change: func(b *bed) { b.start(1, "driver") }, want: notReady("OperandNotReady", "Progressing"),
			message: "2 of 3 GPU nodes are ready; waiting for node-00001 (Driver: Starting)",
		},
		"one node fails": {
			nodes: 3, change: func(b *bed) { b.fail(1, "driver", "") }, want: notReady("OperandFailed", "Degraded"),
			message: "1 of 3 GPU nodes have failed: node-00001 (Driver: CrashLoopBackOff)",
		},
		"one node fails while another starts": {
			nodes: 3, change: func(b *bed) { b.fail(1, "driver", ""); b.start(2, "driver") },
			want: besides(notReady("OperandFailed", "Degraded"), "Progressing", "True OperandNotReady"),
		},
		"a failed call comes before failing nodes": {
			nodes: 3, change: func(b *bed) { b.fail(1, "driver", ""); b.err = errors.New("listing pods: timeout") },
			want: notReady("ReconcileFailed", "Degraded"), message: "listing pods: timeout",
		},
		"an operand whose call failed": {
			nodes: 3, change: func(b *bed) { b.applied["driver"] = Outcome{Err: errors.New("applying DaemonSet x: forbidden")} },
			want: notReady("ReconcileFailed", "Degraded"), message: "driver: applying DaemonSet x: forbidden",
		},
		"what belongs to others comes before failed calls": {
			nodes: 3, change: func(b *bed) { b.applied["driver"] = conflict; b.err = errors.New("timeout") },
			want: notReady("Conflict", "Degraded"), message: "driver: ConfigMap x: belongs to somebody else",
		},
		"a wrong spec comes before all": {
			nodes: 3, want: notReady("InvalidSpec", "Degraded"),
			change: func(b *bed) {
				b.applied["driver"], b.err = conflict, errors.New("timeout")
				b.spec.DevicePlugin = &v1.DevicePluginSpec{ImageSpec: v1.ImageSpec{Image: "a/b", Version: "1"}}
			},
			message: `device-plugin: spec.devicePlugin: image "a/b" is a whole reference: remove repository and version`,
		},
		"what cannot be done as asked is no silent no-op": {
			nodes: 1, change: func(b *bed) {
				b.spec.CDI, b.spec.Toolkit = &v1.CDISpec{NRIPluginEnabled: new(true)}, &v1.ToolkitSpec{Enabled: new(false)}
			},
			want: besides(besides(notReady("InvalidSpec", "Degraded"), "Progressing", "True OperandNotReady"), "AuxiliaryReady", "False OperandNotReady"),
		},
		"an outdated driver": {
			nodes: 3, change: func(b *bed) { b.pod(1, "driver").Annotations[templateDigest] = "before" },
			want:    notReady("UpgradePending", "Progressing"),
			message: "driver: outdated on 1 of 3 nodes: node-00001 (UpgradePending); delete its pod on a node to update it there",
		},
		"what is on its way comes before what is outdated": {
			nodes: 3, change: func(b *bed) { b.pod(1, "driver").Annotations[templateDigest] = "before"; b.start(2, "device-plugin") },
			want: notReady("OperandNotReady", "Progressing"),
		},
		"an operand just written is not Ready": {
			nodes: 3, change: func(b *bed) { b.applied["device-plugin"] = Outcome{Wrote: true} },
			want: notReady("OperandNotReady", "Progressing"), message: "device-plugin: its objects have just been changed",
		},
		"a DaemonSet that is not there yet": {
			nodes: 1, change: func(b *bed) { delete(b.snapshot.DaemonSets, "device-plugin") },
			want: notReady("OperandNotReady", "Progressing"), message: "device-plugin: its DaemonSets are being created",
		},
		"0 of 0 is no success where 3 are expected": {
			nodes: 3, change: func(b *bed) { b.snapshot.DaemonSets["driver"].Status.DesiredNumberScheduled = 0 },
			want:    notReady("OperandNotReady", "Progressing"),
			message: "driver: scheduled on 0 of 3 nodes",
		},
		"excluded nodes hold up nothing": {
			nodes: 3, change: func(b *bed) {
				b.relabel(0, "nvidia.com/gpu.deploy.operands", "false")
				b.snapshot.Pods["node-00000"] = nil
			},
			want: isReady("Reconciled"), message: "2 of 2 GPU nodes are ready",
		},
		"no node is to have operands": {
			nodes: 1, change: func(b *bed) { b.relabel(0, "nvidia.com/gpu.deploy.operands", "false") },
			want: isReady("Excluded"), message: "all 1 GPU nodes are kept free of operands by label nvidia.com/gpu.deploy.operands",
		},
		"a node whose operating system has changed": {
			nodes: 1, change: func(b *bed) { b.relabel(0, "feature.node.kubernetes.io/system-os_release.VERSION_ID", "26.04") },
			want: notReady("UpgradePending", "Progressing"), message: "1 of 1 GPU nodes have an outdated driver: see status.nodes",
		},
		"a disabled operand holds up nothing": {
			nodes: 3, change: func(b *bed) { b.spec.Driver = &v1.DriverSpec{Enabled: new(false)} }, want: isReady("Reconciled"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, test.nodes)
			if test.change != nil {
				test.change(b)
			}
			status := b.status()
			if diff := cmp.Diff(test.want, conditions(status)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got := ready(status).Message; test.message != "" && got != test.message {
				t.Errorf("message\n %q, want\n %q", got, test.message)
			}
			wantState := v1.StateNotReady
			if strings.HasPrefix(test.want["Ready"], "True") {
				wantState = v1.StateReady
			}
			if status.State != wantState || status.ObservedGeneration != 7 || status.Namespace != namespace {
				t.Errorf("state %s, generation %d, namespace %s", status.State, status.ObservedGeneration, status.Namespace)
			}
		})
	}
}

// What GPUs can be used without has a condition of its own, and holds up nothing.
func TestWhatGPUsCanBeUsedWithout(t *testing.T) {
	const exporter = "dcgm-exporter"
	tests := map[string]struct {
		nodes  int
		change func(*bed)
		want   map[string]string
		// message is that of AuxiliaryReady.
		message string
	}{
		"all works":         {nodes: 2, want: map[string]string{"Ready": "True Reconciled", "AuxiliaryReady": "True Reconciled"}},
		"no node has a GPU": {want: map[string]string{"Ready": "True NoGPUNodes", "AuxiliaryReady": "True NoGPUNodes"}, change: func(b *bed) { b.snapshot.AnyDiscovered = true }},
		"it starts": {
			nodes: 2, change: func(b *bed) { b.start(1, exporter) },
			want:    map[string]string{"Ready": "True Reconciled", "AuxiliaryReady": "False OperandNotReady", "Progressing": "True OperandNotReady"},
			message: "dcgm-exporter: ready on 1/2 nodes: node-00001 (container main is not ready yet)",
		},
		"it fails": {
			nodes: 2, change: func(b *bed) { b.fail(1, exporter, "boom") },
			want:    map[string]string{"Ready": "True Reconciled", "AuxiliaryReady": "False OperandFailed", "Degraded": "True OperandFailed"},
			message: "dcgm-exporter: fails on 1 of 2 nodes: node-00001 (container main: CrashLoopBackOff, exit code 1): node-00001 says: boom",
		},
		"it fails, and what GPUs need starts": {
			nodes: 2, change: func(b *bed) { b.fail(1, exporter, "boom"); b.start(0, "driver") },
			want: map[string]string{
				"Ready": "False OperandNotReady", "AuxiliaryReady": "False OperandFailed",
				"Progressing": "True OperandNotReady", "Degraded": "True OperandFailed",
			},
			message: "dcgm-exporter: fails on 1 of 2 nodes: node-00001 (container main: CrashLoopBackOff, exit code 1): node-00001 says: boom",
		},
		"it has just been changed": {
			nodes: 1, change: func(b *bed) { b.applied[exporter] = Outcome{Wrote: true} },
			want:    map[string]string{"Ready": "True Reconciled", "AuxiliaryReady": "False OperandNotReady", "Progressing": "True OperandNotReady"},
			message: "dcgm-exporter: its objects have just been changed",
		},
		"it is outdated, and nobody replaces its pod": {
			nodes: 1, change: func(b *bed) {
				b.snapshot.DaemonSets[exporter].Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
				b.snapshot.DaemonSets[exporter].Annotations["nvidia.com/gpu-operator.template-digest"] = "other"
			},
			want:    map[string]string{"Ready": "True Reconciled", "AuxiliaryReady": "False UpgradePending", "Progressing": "True UpgradePending"},
			message: "dcgm-exporter: outdated on 1 of 1 nodes: node-00000 (UpgradePending); delete its pod on a node to update it there",
		},
		"it cannot be applied": {
			nodes: 1, change: func(b *bed) { b.applied[exporter] = Outcome{Err: apply.ErrConflict} },
			want:    map[string]string{"Ready": "False Conflict", "AuxiliaryReady": "False Conflict", "Degraded": "True Conflict"},
			message: "dcgm-exporter: " + apply.ErrConflict.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, test.nodes)
			if test.change != nil {
				test.change(b)
			}
			status := b.status()
			for _, kind := range []string{"Progressing", "Degraded"} {
				if test.want[kind] == "" {
					test.want[kind] = "False None"
				}
			}
			got := conditions(status)
			got["AuxiliaryReady"] = string(condition(status, "AuxiliaryReady").Status) + " " + condition(status, "AuxiliaryReady").Reason
			delete(got, "Error")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got := condition(status, "AuxiliaryReady").Message; got != test.message {
				t.Errorf("message\n %q, want\n %q", got, test.message)
			}
			if isReady := status.State == v1.StateReady; isReady != strings.HasPrefix(test.want["Ready"], "True") {
				t.Errorf("state %s", status.State)
			}
		})
	}
}

func TestAPassThatCannotObserveKeepsWhatWasSaid(t *testing.T) {
	before := newBed(t, 3).status()
	policy := &v1.ClusterPolicy{Status: before}
	after := Compute(policy, Pass{Namespace: namespace, Err: errors.New("listing nodes: timeout")})
	if diff := cmp.Diff([]any{before.Nodes, before.Operands, before.NodeSummary, before.Pools},
		[]any{after.Nodes, after.Operands, after.NodeSummary, after.Pools}); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	if c := ready(after); c.Status != metav1.ConditionFalse || c.Reason != "ReconcileFailed" || c.Message != "listing nodes: timeout" || after.State != v1.StateNotReady {
		t.Errorf("state %s, condition %+v", after.State, c)
	}
}

// A pass whose decisions not all nodes are assessed by yet leaves the verdict as it is, and reports how far they are.
func TestAPassThatWaitsForNodes(t *testing.T) {
	waiting := func(before v1.ClusterPolicyStatus, err error) v1.ClusterPolicyStatus {
		b := newBed(t, 3)
		b.fail(0, "driver", "boom")
		pass := b.pass()
		pass.Behind, pass.Err = 2, err
		return Compute(&v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Generation: 8}, Status: before}, pass)
	}
	t.Run("after others", func(t *testing.T) {
		g := NewWithT(t)
		before := newBed(t, 3).status()
		after := waiting(before, nil)
		g.Expect(condition(after, v1.ConditionProgressing)).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", "Assessing"),
			HaveField("Message", "2 of 3 GPU nodes are still to be assessed")))
		g.Expect(after.ObservedGeneration).To(Equal(int64(7)), "the spec as it is now is not observed yet")
		after.Conditions, before.Conditions = nil, nil
		g.Expect(after).To(Equal(before))
	})
	t.Run("as the first", func(t *testing.T) {
		g := NewWithT(t)
		after := waiting(v1.ClusterPolicyStatus{}, nil)
		g.Expect(conditions(after)).To(Equal(map[string]string{
			"Ready": "False Assessing", "Progressing": "True Assessing", "Degraded": "False None", "Error": "True Assessing",
		}))
		g.Expect(after.State).To(Equal(v1.StateNotReady))
		g.Expect(after.Nodes).To(BeEmpty())
	})
	t.Run("and has failed", func(t *testing.T) {
		g := NewWithT(t)
		before := newBed(t, 3).status()
		after := waiting(before, errors.New("listing DaemonSets: timeout"))
		g.Expect(conditions(after)).To(HaveKeyWithValue("Ready", "False ReconcileFailed"))
		g.Expect(after.Nodes).To(Equal(before.Nodes))
	})
}

// Nodes that cannot be written are reported with the first error, before what fails on nodes.
func TestNodesThatCannotBeWritten(t *testing.T) {
	g := NewWithT(t)
	b := newBed(t, 3)
	b.fail(2, "driver", "boom")
	pass := b.pass()
	for _, i := range []int{0, 1} {
		pass.Fleet.Nodes[i].WriteError = "patching labels of node " + pass.Fleet.Nodes[i].Facts.Name + ": forbidden"
	}
	status := Compute(newPolicy(b.spec), pass)
	g.Expect(conditions(status)).To(And(HaveKeyWithValue("Ready", "False ReconcileFailed"), HaveKeyWithValue("Degraded", "True ReconcileFailed")))
	g.Expect(ready(status).Message).To(Equal("2 of 3 GPU nodes cannot be written: patching labels of node node-00000: forbidden"))
}

// A node whose verdict changes by time alone is assessed again at the first of these times.
func TestANodeIsAssessedAgainWhenTimeAloneChangesIt(t *testing.T) {
	g := NewWithT(t)
	b := newBed(t, 1)
	g.Expect(b.pass().Fleet.Nodes[0].Latest.Until).To(BeZero(), "all works")
	for name, ago := range map[operand.Name]time.Duration{"driver": 20 * time.Second, "dcgm-exporter": 50 * time.Second} {
		b.pod(0, name).Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", Ready: true,
			State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-ago))}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
		}}
	}
	g.Expect(b.pass().Fleet.Nodes[0].Latest.Until).To(Equal(now.Add(10 * time.Second)))
}

func TestOperandStates(t *testing.T) {
	tests := map[string]struct {
		change func(*bed)
		name   operand.Name
		want   v1.OperandStatus
	}{
		"ready": {
			name: "device-plugin", want: v1.OperandStatus{State: v1.OperandReady, Desired: 3, Ready: 3, Version: "v0.20.0"},
		},
		"without pods": {name: "runtime-classes", want: v1.OperandStatus{State: v1.OperandReady}},
		"starts on a node": {
			name: "device-plugin", change: func(b *bed) { b.start(0, "device-plugin") },
			want: v1.OperandStatus{State: v1.OperandProgressing, Desired: 3, Ready: 2, Version: "v0.20.0", Reason: "OperandNotReady", Message: "ready on 2/3 nodes"},
		},
		"fails on nodes": {
			name: "device-plugin", change: func(b *bed) { b.fail(2, "device-plugin", ""); b.fail(0, "device-plugin", "") },
			want: v1.OperandStatus{
				State: v1.OperandDegraded, Desired: 3, Ready: 1, Version: "v0.20.0", Reason: "OperandFailed",
				Message: "fails on 2 of 3 nodes: node-00000 (CrashLoopBackOff), node-00002 (CrashLoopBackOff)",
			},
		},
		"is disabled": {
			name: "device-plugin", change: func(b *bed) { b.spec.DevicePlugin = &v1.DevicePluginSpec{Enabled: new(false)} },
			want: v1.OperandStatus{State: v1.OperandDisabled, Reason: "DisabledBySpec", Message: "spec.devicePlugin.enabled is false"},
		},
		"is kept off a node": {
			name: "device-plugin", change: func(b *bed) {
				b.relabel(0, "nvidia.com/gpu.deploy.device-plugin", "false")
				b.snapshot.DaemonSets["device-plugin"].Status.DesiredNumberScheduled = 2
			},
			want: v1.OperandStatus{State: v1.OperandReady, Desired: 2, Ready: 2, Version: "v0.20.0"},
		},
		"is off for want of its fence": {
			name: "node-discovery", change: func(b *bed) { b.unfenced() },
			want: v1.OperandStatus{State: v1.OperandDisabled, Reason: "AdmissionPolicyMissing", Message: unfenced},
		},
		"waits for one that was not applied": {
			name: "device-plugin", change: func(b *bed) {
				b.applied["device-plugin"] = Outcome{Err: fmt.Errorf("%w: runtime-classes", ErrPrerequisite)}
			},
			want: v1.OperandStatus{
				State: v1.OperandWaiting, Desired: 3, Ready: 3, Version: "v0.20.0", Reason: "WaitingForOperand",
				Message: "what it requires was not applied: runtime-classes",
			},
		},
		"rolls": {
			name: "device-plugin", change: func(b *bed) {
				b.snapshot.DaemonSets["device-plugin"].Status.UpdatedNumberScheduled = 1
				b.pod(2, "device-plugin").Annotations[templateDigest] = "before"
			},
			want: v1.OperandStatus{State: v1.OperandProgressing, Desired: 3, Ready: 3, Version: "v0.20.0", Reason: "RollingOut", Message: "updated on 1 of 3 nodes"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, 3)
			if test.change != nil {
				test.change(b)
			}
			test.want.Name = string(test.name)
			if diff := cmp.Diff(test.want, operandOf(t, b.status(), test.name)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestNodesAreListedWorstFirst(t *testing.T) {
	b := newBed(t, 5)
	b.start(1, "driver")
	b.fail(3, "container-toolkit", "boom")
	b.relabel(4, "nvidia.com/gpu.deploy.operands", "false")
	b.pod(2, "driver").Annotations[templateDigest] = "before"
	since, asOfNow := metav1.Unix(5, 0), metav1.NewTime(now)
	b.snapshot.Nodes[3].Object.Status.Conditions = append(b.snapshot.Nodes[3].Object.Status.Conditions,
		corev1.NodeCondition{Type: "nvidia.com/GPUReady", Status: corev1.ConditionFalse, LastTransitionTime: since})
	const pool = "ubuntu24.04-amd64"
	want := []v1.NodeStatus{
		{
			Name: "node-00003", Stage: v1.StageToolkit, Pool: pool, Operand: "container-toolkit", Reason: "CrashLoopBackOff",
			Message: "container main: CrashLoopBackOff, exit code 1: boom", Since: &since,
		},
		{
			Name: "node-00001", Stage: v1.StageDriver, Pool: pool, Operand: "driver", Reason: "Starting",
			Message: "container main is not ready yet", Since: &asOfNow,
		},
		{
			Name: "node-00002", Ready: true, Stage: v1.StageValidated, Pool: pool, Operand: "driver", Reason: "UpgradePending",
			Message: "driver is outdated: kubectl -n gpu-operator delete pod driver-node-00002",
		},
		{
			Name: "node-00004", Stage: v1.StageDiscovered, Pool: pool, Reason: "Excluded",
			Message: `label nvidia.com/gpu.deploy.operands is "false"`, Since: &asOfNow,
		},
		{Name: "node-00000", Ready: true, Stage: v1.StageValidated, Pool: pool},
	}
	status := b.status()
	if diff := cmp.Diff(want, status.Nodes); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	summary := &v1.NodeSummary{Total: 4, Ready: 2, Progressing: 1, Degraded: 1, Upgrading: 1, Excluded: 1, Listed: 5, ReadyOfTotal: "2/4"}
	if diff := cmp.Diff(summary, status.NodeSummary); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTheStatusIsAsLargeAt150NodesAsAt5000(t *testing.T) {
	size := func(nodes int) (int, v1.ClusterPolicyStatus) {
		b := newBed(t, nodes)
		for i := range nodes {
			b.fail(i, "driver", "boom")
		}
		status := b.status()
		data, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		return len(data), status
	}
	small, _ := size(150)
	large, status := size(5000)
	if len(status.Nodes) != 100 || status.NodeSummary.Listed != 100 || status.NodeSummary.Total != 5000 {
		t.Errorf("%d nodes listed, summary %+v", len(status.Nodes), status.NodeSummary)
	}
	// Only the digits of the counters differ.
	if large-small > 50 {
		t.Errorf("%d bytes at 150 nodes, %d at 5,000", small, large)
	}
}

// TestTheStatusOfAFleetThatIsAllBroken: every operand of every node fails with the longest message.
func TestTheStatusOfAFleetThatIsAllBroken(t *testing.T) {
	for name, test := range map[string]struct {
		length, listed int
		message        string
	}{
		"names as long as the label of a host": {length: 63, message: "a ", listed: 100},
		"the longest names":                    {length: 253, message: "a ", listed: 75},
		"what JSON escapes":                    {length: 63, message: "<\x00", listed: 55},
	} {
		t.Run(name, func(t *testing.T) { brokenFleet(t, test.length, test.message, test.listed) })
	}
}

func brokenFleet(t *testing.T, length int, message string, listed int) {
	t.Helper()
	g := NewWithT(t)
	size := func(nodes int) int {
		b := newBed(t, 0)
		b.snapshot.DaemonSets = newBed(t, 1).snapshot.DaemonSets
		for i := range nodes {
			b.addNode(fmt.Sprintf("%s-%05d", strings.Repeat("n", length-6), i))
			b.said(i, corev1.ConditionFalse, time.Hour)
			for name := range b.snapshot.DaemonSets {
				b.fail(i, operand.Name(name), strings.Repeat(message, 2000))
			}
		}
		status := b.status()
		data, err := json.Marshal(status)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(status.Nodes)).To(Equal(listed)) //nolint:ginkgolinter // The whole list would be printed.
		g.Expect(status.NodeSummary).To(And(HaveField("Listed", int32(listed)), HaveField("Degraded", int32(nodes))))
		return len(data)
	}
	small, large := size(150), size(5000)
	t.Logf("%d bytes at 150 nodes, %d at 5,000", small, large)
	g.Expect(large-small).To(BeNumerically("<=", 100), "only the digits of the counters differ")
	g.Expect(large).To(BeNumerically("<=", 64<<10))
}

func TestTheWorstNodesAreAmongThe100(t *testing.T) {
	b := newBed(t, 150)
	b.fail(149, "driver", "boom")
	b.start(148, "driver")
	status := b.status()
	if status.Nodes[0].Name != "node-00149" || status.Nodes[1].Name != "node-00148" {
		t.Errorf("the list begins with %s and %s", status.Nodes[0].Name, status.Nodes[1].Name)
	}
}

func TestAFailureKeepsItsMessageWhileTheCauseIsTheSame(t *testing.T) {
	b := newBed(t, 1)
	b.fail(0, "driver", "attempt 1")
	first := b.status()
	b.fail(0, "driver", "attempt 2")
	second := b.status(first)
	if diff := cmp.Diff(first.Nodes, second.Nodes); diff != "" {
		t.Errorf("-first +second:\n%s", diff)
	}
	b.fail(0, "driver", "")
	if got := b.status(second).Nodes[0].Message; got != first.Nodes[0].Message {
		t.Errorf("an attempt that says nothing takes the reason away: %q", got)
	}
	tests := map[string]func(*bed){
		"it comes from another operand": func(b *bed) { b.start(0, "driver"); b.fail(0, "container-toolkit", "attempt 3") },
		"it is another reason": func(b *bed) {
			b.pod(0, "driver").Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}
		},
		"the node works": func(b *bed) { b.pod(0, "driver").Status.Conditions[1].Status = corev1.ConditionTrue },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			other := newBed(t, 1)
			other.fail(0, "driver", "attempt 2")
			change(other)
			if got := other.status(second).Nodes[0].Message; got == first.Nodes[0].Message {
				t.Errorf("the message is still %q", got)
			}
		})
	}
}

func TestAFailureGetsItsReasonWithTheFirstAttemptThatTellsIt(t *testing.T) {
	b := newBed(t, 1)
	b.fail(0, "driver", "")
	silent := b.status()
	b.fail(0, "driver", "no GPU")
	if got := b.status(silent).Nodes[0].Message; !strings.HasSuffix(got, "exit code 1: no GPU") {
		t.Errorf("the message is %q", got)
	}
}

func TestTexts(t *testing.T) {
	b := newBed(t, 1)
	b.fail(0, "driver", strings.Repeat("日本語", 100))
	message := b.status().Nodes[0].Message
	if len(message) > 128 || !utf8.ValidString(message) || !strings.HasSuffix(message, "...") {
		t.Errorf("%d bytes: %q", len(message), message)
	}
}

func TestIgnored(t *testing.T) {
	policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "second", Generation: 3}, Status: newBed(t, 3).status()}
	status := Ignored(policy, namespace, "first")
	if status.State != v1.StateIgnored || status.ObservedGeneration != 3 || len(status.Nodes)+len(status.Operands) != 0 || status.NodeSummary != nil {
		t.Errorf("got %+v", status)
	}
	want := map[string]string{"Ready": "False Ignored", "Progressing": "False None", "Degraded": "False None", "Error": "True Ignored"}
	if diff := cmp.Diff(want, conditions(status)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := ready(status).Message; got != "ClusterPolicy first is older and in force: delete one of the two" {
		t.Errorf("got %q", got)
	}
}

func TestFailedIsOfFailedCallsAlone(t *testing.T) {
	b := newBed(t, 1)
	b.applied["driver"] = Outcome{Err: fmt.Errorf("x %w", apply.ErrConflict)}
	b.applied["device-plugin"] = Outcome{Err: fmt.Errorf("%w: y", ErrPrerequisite)}
	if b.pass().Failed() {
		t.Error("what others own counts as a failed call")
	}
	b.applied["operator-validator"] = Outcome{Err: errors.New("timeout")}
	if !b.pass().Failed() {
		t.Error("a failed call of an operand does not count")
	}
	delete(b.applied, "operator-validator")
	b.err = errors.New("pruning failed")
	if !b.pass().Failed() {
		t.Error("a failed call beside the operands does not count")
	}
}

func TestNodeCondition(t *testing.T) {
	tests := map[string]struct {
		change func(*bed)
		want   corev1.NodeCondition
	}{
		"works": {want: corev1.NodeCondition{Status: "True", Reason: "GPUReady", Message: "node-00000: GPUs can be used"}},
		"fails": {
			change: func(b *bed) { b.fail(0, "driver", "boom") },
			want: corev1.NodeCondition{
				Status: "False", Reason: "CrashLoopBackOff",
				Message: "node-00000: stage Driver, operand driver: container main: CrashLoopBackOff, exit code 1: boom",
			},
		},
		"the kubelet is silent": {
			change: func(b *bed) { b.snapshot.Nodes[0].Object.Status.Conditions[0].Status = corev1.ConditionUnknown },
			want:   corev1.NodeCondition{Status: "False", Reason: "NodeUnreachable", Message: "node-00000: stage Discovered: the kubelet does not answer"},
		},
		"outdated": {
			change: func(b *bed) { b.pod(0, "driver").Annotations[templateDigest] = "before" },
			want: corev1.NodeCondition{
				Status: "True", Reason: "UpgradePending",
				Message: "node-00000: GPUs can be used; driver is outdated: kubectl -n gpu-operator delete pod driver-node-00000",
			},
		},
		"no GPU, as the plugin is kept off": {
			change: func(b *bed) {
				b.relabel(0, "nvidia.com/gpu.deploy.device-plugin", "false")
				delete(b.snapshot.Nodes[0].Object.Status.Allocatable, "nvidia.com/gpu")
			},
			want: corev1.NodeCondition{
				Status: "False", Reason: "NotAllocatable",
				Message: `node-00000: stage Allocatable: the kubelet advertises no GPU that can be allocated; label nvidia.com/gpu.deploy.device-plugin is "false"`,
			},
		},
		"no GPU, though the plugin runs": {
			change: func(b *bed) { delete(b.snapshot.Nodes[0].Object.Status.Allocatable, "nvidia.com/gpu") },
			want: corev1.NodeCondition{
				Status: "False", Reason: "NotAllocatable",
				Message: "node-00000: stage Allocatable, operand device-plugin: the kubelet advertises no GPU that can be allocated",
			},
		},
		"no GPU, and a container to look at": {
			change: func(b *bed) {
				delete(b.snapshot.Nodes[0].Object.Status.Allocatable, "nvidia.com/gpu")
				b.run("device-plugin", "plugin")
			},
			want: corev1.NodeCondition{
				Status: "False", Reason: "NotAllocatable",
				Message: "node-00000: stage Allocatable, operand device-plugin: the kubelet advertises no GPU that can be allocated: see the log of container plugin",
			},
		},
		"the toolkit hangs": {
			change: func(b *bed) {
				b.run("container-toolkit", "toolkit-ctr")
				b.awaitHandler("device-plugin")
			},
			want: corev1.NodeCondition{
				Status: "False", Reason: "Starting",
				Message: "node-00000: stage Toolkit, operand container-toolkit: container toolkit-ctr runs, but the runtime makes no pod of RuntimeClass nvidia yet",
			},
		},
		"the handler works for another pod since the toolkit came up": {
			change: func(b *bed) {
				b.run("container-toolkit", "toolkit-ctr")
				b.awaitHandler("device-plugin")
				b.made("operator-validator", 30*time.Second)
			},
			want: corev1.NodeCondition{
				Status: "False", Reason: "Starting",
				Message: "node-00000: stage DevicePlugin, operand device-plugin: the container runtime has not made the pod yet, with RuntimeClass nvidia",
			},
		},
		"it worked before the toolkit was replaced": {
			change: func(b *bed) {
				b.run("container-toolkit", "toolkit-ctr")
				b.awaitHandler("device-plugin")
				b.made("operator-validator", time.Hour)
			},
			want: corev1.NodeCondition{
				Status: "False", Reason: "Starting",
				Message: "node-00000: stage Toolkit, operand container-toolkit: container toolkit-ctr runs, but the runtime makes no pod of RuntimeClass nvidia yet",
			},
		},
		"no pod yet": {
			change: func(b *bed) { delete(b.snapshot.Pods["node-00000"], "container-toolkit") },
			want: corev1.NodeCondition{
				Status: "False", Reason: "PodMissing",
				Message: "node-00000: stage Toolkit, operand container-toolkit: DaemonSet container-toolkit has made no pod for the node yet",
			},
		},
		"paused": {
			change: func(b *bed) { b.relabel(0, "nvidia.com/gpu.deploy.driver", "paused-for-driver-upgrade") },
			want: corev1.NodeCondition{
				Status: "False", Reason: "OperandPaused",
				Message: `node-00000: stage Driver, operand driver: label nvidia.com/gpu.deploy.driver is "paused-for-driver-upgrade"`,
			},
		},
		"not possible, but it runs": {
			change: func(b *bed) {
				b.snapshot.Nodes[0].Object.Status.NodeInfo.ContainerRuntimeVersion = "isulad://1"
				b.relabel(0, "x", "y")
			},
			want: corev1.NodeCondition{Status: "True", Reason: "GPUReady", Message: "node-00000: GPUs can be used"},
		},
		"not possible, and it does not run": {
			change: func(b *bed) {
				b.snapshot.Nodes[0].Object.Status.NodeInfo.ContainerRuntimeVersion = "isulad://1"
				b.relabel(0, "x", "y")
				delete(b.snapshot.Pods["node-00000"], "container-toolkit")
			},
			want: corev1.NodeCondition{
				Status: "False", Reason: "NotSupportedYet",
				Message: `node-00000: stage Toolkit, operand container-toolkit: container runtime "isulad" is not supported, only containerd, CRI-O and Docker: ` +
					"install the toolkit on the host and set the node's label nvidia.com/gpu.deploy.container-toolkit to pre-installed",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, 1)
			if test.change != nil {
				test.change(b)
			}
			test.want.Type = "nvidia.com/GPUReady"
			if diff := cmp.Diff(test.want, b.pass().Fleet.Nodes[0].Latest.Condition("node-00000")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
