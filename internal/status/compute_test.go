package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/stack/apply"
	"github.com/clusterpolicy/gpu-operator/test/chance"
)

func TestPolicyConditions(t *testing.T) {
	withoutPolicies := func(want map[string]string) map[string]string {
		want["AdmissionPolicyMissing"] = "True AdmissionPolicyMissing"
		return want
	}
	conflict := ApplyResult{Err: fmt.Errorf("ConfigMap x: %w", apply.ErrConflict)}
	tests := map[string]struct {
		nodes   int
		change  func(*env)
		want    map[string]string
		message string
	}{
		"all works": {nodes: 3, want: isReady("Reconciled"), message: "3 of 3 GPU nodes are ready"},
		"no node has a GPU": {
			change: func(e *env) { e.snapshot.AnyDiscovered = true }, want: isReady("NoGPUNodes"), message: "no node has a GPU",
		},
		"a cluster without nodes": {
			want:    notReady("NodeDiscoveryMissing"),
			message: "no node has discovery labels, so the GPU nodes are unknown: the cluster has no node",
		},
		"nothing was discovered by Node Feature Discovery": {
			change: func(e *env) {
				e.spec.NodeDiscovery = &v1.NodeDiscoverySpec{Mode: v1.DiscoveryNFD}
				e.addUndiscovered(nil)
			},
			want: notReady("NodeDiscoveryMissing"),
			message: "no node has discovery labels, so the GPU nodes are unknown: " +
				"install Node Feature Discovery, or set spec.nodeDiscovery.mode to auto",
		},
		"node discovery is off without its admission policy": {
			change:  func(e *env) { e.removeAdmissionPolicies(); e.addUndiscovered(nil) },
			want:    withoutPolicies(notReady("NodeDiscoveryMissing")),
			message: "no node has discovery labels, so the GPU nodes are unknown: " + admissionPolicyMissing,
		},
		"node discovery is off without its admission policy, in a cluster without nodes": {
			change: func(e *env) { e.removeAdmissionPolicies() }, want: withoutPolicies(notReady("NodeDiscoveryMissing")),
			message: "no node has discovery labels, so the GPU nodes are unknown: the cluster has no node",
		},
		"node discovery is off without its admission policy, and the nodes have labels": {
			nodes:   3,
			change:  func(e *env) { e.removeAdmissionPolicies() },
			want:    withoutPolicies(isReady("Reconciled")),
			message: "3 of 3 GPU nodes are ready",
		},
		"nodes are discovered by Node Feature Discovery, and the admission policies are missing": {
			nodes: 3, change: func(e *env) {
				e.removeAdmissionPolicies()
				e.spec.NodeDiscovery = &v1.NodeDiscoverySpec{Mode: v1.DiscoveryNFD}
			},
			want: withoutPolicies(isReady("Reconciled")), message: "3 of 3 GPU nodes are ready",
		},
		"node discovery is set to builtin, and its admission policy is missing": {
			nodes: 3, change: func(e *env) {
				e.removeAdmissionPolicies()
				e.spec.NodeDiscovery = &v1.NodeDiscoverySpec{Mode: v1.DiscoveryBuiltin}
			},
			want:    withoutPolicies(notReady("AdmissionPolicyMissing", "Degraded", "Stalled")),
			message: "node-discovery: " + admissionPolicyMissing,
		},
		"node discovery starts": {
			change:  func(e *env) { e.addUndiscovered(nil); e.addDiscoveryDaemonSet(2) },
			want:    notReady("OperandNotReady", "Progressing"),
			message: "node-discovery: its pods are ready on 1 of 2 nodes, and no node has discovery labels yet",
		},
		"node discovery runs on all nodes, and none has labels": {
			change: func(e *env) { e.addUndiscovered(nil); e.addDiscoveryDaemonSet(1) },
			want:   notReady("NodeDiscoveryMissing"),
			message: "no node has discovery labels, so the GPU nodes are unknown: " +
				"check the pods of DaemonSet nvidia-node-discovery",
		},
		"node discovery fails on an undiscovered node": {
			nodes: 1, change: func(e *env) { e.addUndiscovered(crashing); e.addDiscoveryDaemonSet(2) },
			want:    notReady("OperandFailed", "Degraded"),
			message: "node-discovery: fails on 1 of 2 nodes: cpu-1 (CrashLoopBackOff: no os-release)",
		},
		"node discovery starts on a node that joins": {
			nodes: 1, change: func(e *env) { e.addUndiscovered(nil); e.addDiscoveryDaemonSet(2) }, want: isReady("Reconciled"),
			message: "1 of 1 GPU nodes are ready",
		},
		"one node starts": {
			nodes: 3, change: func(e *env) { e.startPod(1, "driver") }, want: notReady("OperandNotReady", "Progressing"),
			message: "2 of 3 GPU nodes are ready; waiting for node-00001 (Driver: Starting)",
		},
		"one node fails": {
			nodes: 3, change: func(e *env) { e.failPod(1, "driver", "") }, want: notReady("OperandFailed", "Degraded"),
			message: "1 of 3 GPU nodes have failed: node-00001 (Driver: CrashLoopBackOff)",
		},
		"one node fails while another starts": {
			nodes: 3, change: func(e *env) { e.failPod(1, "driver", ""); e.startPod(2, "driver") },
			want: withValue(notReady("OperandFailed", "Degraded"), "Progressing", "True OperandNotReady"),
		},
		"a failed call comes before failing nodes": {
			nodes: 3, change: func(e *env) { e.failPod(1, "driver", ""); e.err = errors.New("listing pods: timeout") },
			want: notReady("ReconcileFailed", "Degraded"), message: "listing pods: timeout",
		},
		"an operand whose call failed": {
			nodes:  3,
			change: func(e *env) { e.applied["driver"] = ApplyResult{Err: errors.New("applying DaemonSet x: forbidden")} },
			want:   notReady("ReconcileFailed", "Degraded"), message: "driver: applying DaemonSet x: forbidden",
		},
		"a conflict comes before failed calls": {
			nodes: 3, change: func(e *env) { e.applied["driver"] = conflict; e.err = errors.New("timeout") },
			want:    notReady("Conflict", "Degraded", "Stalled"),
			message: "driver: ConfigMap x: is not controlled by this ClusterPolicy",
		},
		"an invalid spec comes first": {
			nodes: 3, want: notReady("InvalidSpec", "Degraded", "Stalled"),
			change: func(e *env) {
				e.applied["driver"], e.err = conflict, errors.New("timeout")
				e.spec.DevicePlugin = &v1.DevicePluginSpec{ImageSpec: v1.ImageSpec{Image: "a/b", Version: "1"}}
			},
			message: `device-plugin: spec.devicePlugin: image "a/b" is a full reference: remove repository and version`,
		},
		"contradicting fields are invalid": {
			nodes: 1, change: func(e *env) {
				e.spec.CDI, e.spec.Toolkit = &v1.CDISpec{NRIPluginEnabled: new(true)}, &v1.ToolkitSpec{Enabled: new(false)}
			},
			want: withValue(
				withValue(notReady("InvalidSpec", "Degraded", "Stalled"), "Progressing", "True OperandNotReady"),
				"AuxiliaryReady",
				"False OperandNotReady",
			),
		},
		"an outdated driver": {
			nodes: 3, change: func(e *env) { e.pod(1, "driver").Annotations[templateDigest] = "before" },
			want: notReady("UpgradePending", "Progressing"),
			message: "1 of 3 GPU nodes wait for a driver upgrade, 0 in progress; node-00001: driver is outdated: " +
				"kubectl annotate node node-00001 nvidia.com/gpu-driver-upgrade-requested=true",
		},
		"a starting operand comes before an outdated one": {
			nodes: 3, change: func(e *env) {
				e.pod(1, "driver").Annotations[templateDigest] = "before"
				e.startPod(2, "device-plugin")
			},
			want: notReady("OperandNotReady", "Progressing"),
		},
		"an operand that was just updated is not ready": {
			nodes: 3, change: func(e *env) { e.applied["device-plugin"] = ApplyResult{Wrote: true} },
			want:    notReady("OperandNotReady", "Progressing"),
			message: "device-plugin: its objects were just applied: waiting for the DaemonSet controller to observe them",
		},
		"a missing DaemonSet": {
			nodes: 1, change: func(e *env) { delete(e.snapshot.DaemonSets, "device-plugin") },
			want: notReady("OperandNotReady", "Progressing"), message: "device-plugin: its DaemonSets are being created",
		},
		"excluded nodes do not count": {
			nodes: 3, change: func(e *env) {
				e.setLabel(0, "nvidia.com/gpu.deploy.operands", "false")
				e.snapshot.Pods["node-00000"] = nil
			},
			want: isReady("Reconciled"), message: "2 of 2 GPU nodes are ready",
		},
		"all nodes are excluded": {
			nodes: 1, change: func(e *env) { e.setLabel(0, "nvidia.com/gpu.deploy.operands", "false") },
			want: isReady("Excluded"), message: "all 1 GPU nodes are excluded by label nvidia.com/gpu.deploy.operands=false: " +
				"remove the label to use their GPUs",
		},
		"a node whose operating system has changed": {
			nodes: 1, change: func(e *env) { e.setLabel(0, "feature.node.kubernetes.io/system-os_release.VERSION_ID", "26.04") },
			want: notReady("UpgradePending", "Progressing"),
			message: "1 of 1 GPU nodes wait for a driver upgrade, 0 in progress; node-00000: driver is outdated: " +
				"kubectl annotate node node-00000 nvidia.com/gpu-driver-upgrade-requested=true; " +
				"it moves from ubuntu24.04-amd64 to ubuntu26.04-amd64",
		},
		"a disabled operand does not count": {
			nodes: 3, change: func(e *env) { e.spec.Driver = &v1.DriverSpec{Enabled: new(false)} }, want: isReady("Reconciled"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, test.nodes)
			if test.change != nil {
				test.change(e)
			}
			status := e.status()
			if diff := cmp.Diff(test.want, conditionsOf(status)); diff != "" {
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

// Auxiliary operands have a condition of their own and do not change Ready.
func TestAuxiliaryConditions(t *testing.T) {
	const exporter = "dcgm-exporter"
	tests := map[string]struct {
		nodes  int
		change func(*env)
		want   map[string]string
		// message is that of AuxiliaryReady.
		message string
	}{
		"all works": {
			nodes: 2,
			want:  map[string]string{"Ready": "True Reconciled", "AuxiliaryReady": "True Reconciled"},
		},
		"no node has a GPU": {
			want:   map[string]string{"Ready": "True NoGPUNodes", "AuxiliaryReady": "True NoGPUNodes"},
			change: func(e *env) { e.snapshot.AnyDiscovered = true },
		},
		"it starts": {
			nodes: 2, change: func(e *env) { e.startPod(1, exporter) },
			want: map[string]string{
				"Ready":          "True Reconciled",
				"AuxiliaryReady": "False OperandNotReady",
				"Progressing":    "True OperandNotReady",
			},
			message: "dcgm-exporter: ready on 1 of 2 nodes: node-00001 (container main is not ready)",
		},
		"it fails": {
			nodes: 2, change: func(e *env) { e.failPod(1, exporter, "boom") },
			want: map[string]string{
				"Ready":          "True Reconciled",
				"AuxiliaryReady": "False OperandFailed",
				"Degraded":       "True OperandFailed",
			},
			message: "dcgm-exporter: fails on 1 of 2 nodes: node-00001 (container main: CrashLoopBackOff, exit code 1): " +
				"on node-00001: boom",
		},
		"it fails, and an essential operand starts": {
			nodes: 2, change: func(e *env) { e.failPod(1, exporter, "boom"); e.startPod(0, "driver") },
			want: map[string]string{
				"Ready": "False OperandNotReady", "AuxiliaryReady": "False OperandFailed",
				"Progressing": "True OperandNotReady", "Degraded": "True OperandFailed",
			},
			message: "dcgm-exporter: fails on 1 of 2 nodes: node-00001 (container main: CrashLoopBackOff, exit code 1): " +
				"on node-00001: boom",
		},
		"it has just been changed": {
			nodes: 1, change: func(e *env) { e.applied[exporter] = ApplyResult{Wrote: true} },
			want: map[string]string{
				"Ready":          "True Reconciled",
				"AuxiliaryReady": "False OperandNotReady",
				"Progressing":    "True OperandNotReady",
			},
			message: "dcgm-exporter: its objects were just applied: waiting for the DaemonSet controller to observe them",
		},
		"it is outdated, with update strategy OnDelete": {
			nodes: 1, change: func(e *env) {
				e.snapshot.DaemonSets[exporter].Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
				e.snapshot.DaemonSets[exporter].Annotations["nvidia.com/gpu-operator.template-digest"] = "other"
			},
			want: map[string]string{
				"Ready":          "True Reconciled",
				"AuxiliaryReady": "False UpgradePending",
				"Progressing":    "True UpgradePending",
			},
			message: "dcgm-exporter: its pods are outdated on 1 of 1 nodes: node-00000 (UpgradePending); " +
				"delete the pod of a node to replace it",
		},
		"it cannot be applied": {
			nodes: 1, change: func(e *env) { e.applied[exporter] = ApplyResult{Err: apply.ErrConflict} },
			want: map[string]string{
				"Stalled": "True Conflict", "Ready": "False Conflict",
				"AuxiliaryReady": "False Conflict",
				"Degraded":       "True Conflict",
			},
			message: "dcgm-exporter: " + apply.ErrConflict.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, test.nodes)
			if test.change != nil {
				test.change(e)
			}
			status := e.status()
			for _, conditionType := range []string{"Progressing", "Degraded"} {
				if test.want[conditionType] == "" {
					test.want[conditionType] = "False None"
				}
			}
			got := conditionsOf(status)
			auxiliary := condition(status, "AuxiliaryReady")
			got["AuxiliaryReady"] = string(auxiliary.Status) + " " + auxiliary.Reason
			delete(got, "Error")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if auxiliary.Message != test.message {
				t.Errorf("message\n %q, want\n %q", auxiliary.Message, test.message)
			}
			if is := status.State == v1.StateReady; is != strings.HasPrefix(test.want["Ready"], "True") {
				t.Errorf("state %s", status.State)
			}
		})
	}
}

func TestFailedPassKeepsNodesAndOperands(t *testing.T) {
	before := newEnv(t, 3).status()
	policy := &v1.ClusterPolicy{Status: before}
	after := Compute(policy, Input{Namespace: namespace, Err: errors.New("listing nodes: timeout")})
	if diff := cmp.Diff([]any{before.Nodes, before.Operands, before.NodeSummary, before.Pools},
		[]any{after.Nodes, after.Operands, after.NodeSummary, after.Pools}); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	if c := ready(after); c.Status != metav1.ConditionFalse || c.Reason != "ReconcileFailed" ||
		c.Message != "listing nodes: timeout" ||
		after.State != v1.StateNotReady {
		t.Errorf("state %s, condition %+v", after.State, c)
	}
}

// A failed pass is reported with a message, whatever its error is.
func TestFailedPassHasAMessage(t *testing.T) {
	planned := newEnv(t, 1).input()
	planned.Err = errors.New("")
	for name, in := range map[string]Input{
		"neither a plan nor an error":           {},
		"an error without a text":               {Err: errors.New("")},
		"a plan, and an error without any text": planned,
	} {
		if c := ready(Compute(&v1.ClusterPolicy{}, in)); c.Reason != "ReconcileFailed" ||
			!strings.HasSuffix(c.Message, ": see its log") {
			t.Errorf("%s: %s %q", name, c.Reason, c.Message)
		}
	}
}

// While nodes are not assessed by the decisions of the pass, the status only reports how many.
func TestUnassessedNodes(t *testing.T) {
	waiting := func(before v1.ClusterPolicyStatus, err error) v1.ClusterPolicyStatus {
		e := newEnv(t, 3)
		e.failPod(0, "driver", "boom")
		in := e.input()
		in.Unassessed, in.Err = 2, err
		return Compute(&v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Generation: 8}, Status: before}, in)
	}
	t.Run("after others", func(t *testing.T) {
		g := NewWithT(t)
		before := newEnv(t, 3).status()
		after := waiting(before, nil)
		g.Expect(condition(after, v1.ConditionProgressing)).To(And(
			HaveField("Status", metav1.ConditionTrue), HaveField("Reason", "Assessing"),
			HaveField("Message", "2 of 3 GPU nodes are not assessed against the current spec yet"),
		))
		g.Expect(after.ObservedGeneration).To(Equal(int64(7)), "the current spec is not observed yet")
		after.Conditions, before.Conditions = nil, nil
		g.Expect(after).To(Equal(before))
	})
	t.Run("as the first", func(t *testing.T) {
		g := NewWithT(t)
		// The default of the definition. In a condition the API server would refuse it.
		after := waiting(v1.ClusterPolicyStatus{ObservedGeneration: -1}, nil)
		g.Expect(after.Conditions).To(HaveEach(HaveField("ObservedGeneration", BeZero())))
		g.Expect(conditionsOf(after)).To(Equal(map[string]string{
			"Ready": "False Assessing", "Progressing": "True Assessing", "Degraded": "False None", "Error": "True Assessing",
		}))
		g.Expect(after.State).To(Equal(v1.StateNotReady))
		g.Expect(after.Nodes).To(BeEmpty())
	})
	t.Run("of a policy that was ignored", func(t *testing.T) {
		g := NewWithT(t)
		ignored := Ignored(newPolicy(v1.ClusterPolicySpec{}), namespace, named("older"))
		g.Expect(conditionsOf(ignored)).To(HaveKeyWithValue("Stalled", "True Ignored"))
		after := waiting(ignored, nil)
		g.Expect(conditionsOf(after)).To(Equal(map[string]string{
			"Ready": "False Assessing", "Progressing": "True Assessing", "Degraded": "False None", "Error": "True Assessing",
		}))
		g.Expect(after.State).To(Equal(v1.StateNotReady))
		g.Expect(waiting(after, nil)).To(Equal(after), "the next pass writes nothing")
	})
	t.Run("after an invalid spec", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, 3)
		e.spec.DevicePlugin = &v1.DevicePluginSpec{ImageSpec: v1.ImageSpec{Image: "a/b", Version: "1"}}
		before := e.status()
		g.Expect(conditionsOf(before)).To(HaveKeyWithValue("Stalled", "True InvalidSpec"))
		g.Expect(conditionsOf(waiting(before, nil))).To(And(
			Not(HaveKey("Stalled")), HaveKeyWithValue("Ready", "False InvalidSpec"),
		))
	})
	t.Run("of a policy that only a person can mend, after a restart", func(t *testing.T) {
		for reason, change := range map[string]func(*env){
			"InvalidSpec": func(e *env) {
				e.spec.DevicePlugin = &v1.DevicePluginSpec{ImageSpec: v1.ImageSpec{Image: "a/b", Version: "1"}}
			},
			"Conflict": func(e *env) { e.applied["driver"] = ApplyResult{Err: apply.ErrConflict} },
		} {
			g := NewWithT(t)
			e := newEnv(t, 3)
			change(e)
			before := e.status()
			in := e.input()
			in.Unassessed = 2
			policy := newPolicy(e.spec)
			policy.Status = before
			after := Compute(policy, in)
			g.Expect(conditionsOf(after)).To(And(
				HaveKeyWithValue("Stalled", "True "+reason), HaveKeyWithValue("Ready", "False "+reason),
				HaveKeyWithValue("Progressing", "True Assessing"),
			), reason)
			after.Conditions, before.Conditions = nil, nil
			g.Expect(after).To(Equal(before), reason)
		}
	})
	t.Run("of a policy that another release mends", func(t *testing.T) {
		g := NewWithT(t)
		e := newEnv(t, 3)
		e.applied["driver"] = ApplyResult{Err: apply.ErrConflict}
		policy := newPolicy(e.spec)
		policy.Status = e.status()
		delete(e.applied, "driver")
		in := e.input()
		in.Unassessed = 2
		g.Expect(conditionsOf(Compute(policy, in))).NotTo(HaveKey("Stalled"))
	})
	t.Run("and has failed", func(t *testing.T) {
		g := NewWithT(t)
		before := newEnv(t, 3).status()
		after := waiting(before, errors.New("listing DaemonSets: timeout"))
		g.Expect(conditionsOf(after)).To(HaveKeyWithValue("Ready", "False ReconcileFailed"))
		g.Expect(after.Nodes).To(Equal(before.Nodes))
	})
}

// Nodes that cannot be updated are reported with the first error, before failing nodes.
func TestNodeWriteErrors(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, 3)
	e.failPod(2, "driver", "boom")
	in := e.input()
	for _, i := range []int{0, 1} {
		in.View.Nodes[i].WriteError = "patching labels of node " + in.View.Nodes[i].Facts.Name + ": forbidden"
	}
	status := Compute(newPolicy(e.spec), in)
	g.Expect(conditionsOf(status)).To(And(
		HaveKeyWithValue("Ready", "False ReconcileFailed"), HaveKeyWithValue("Degraded", "True ReconcileFailed"),
	))
	g.Expect(ready(status).Message).To(Equal(
		"2 of 3 GPU nodes cannot be updated: patching labels of node node-00000: forbidden"))
}

// A node whose assessment changes with time is assessed again at the first of these times.
func TestAssessmentUntil(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, 1)
	g.Expect(e.input().View.Nodes[0].Latest.Until).To(BeZero(), "all ready")
	for name, ago := range map[operand.Name]time.Duration{"driver": 20 * time.Second, "dcgm-exporter": 50 * time.Second} {
		e.pod(0, name).Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", Ready: true,
			State: corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-ago))},
			},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
		}}
	}
	g.Expect(e.input().View.Nodes[0].Latest.Until).To(Equal(now.Add(10 * time.Second)))
}

func TestOperandStates(t *testing.T) {
	tests := map[string]struct {
		change func(*env)
		name   operand.Name
		want   v1.OperandStatus
	}{
		"ready": {
			name: "device-plugin", want: v1.OperandStatus{State: v1.OperandReady, Desired: 3, Ready: 3, Version: "v0.20.0"},
		},
		"without pods": {name: "runtime-classes", want: v1.OperandStatus{State: v1.OperandReady}},
		"starts on a node": {
			name: "device-plugin", change: func(e *env) { e.startPod(0, "device-plugin") },
			want: v1.OperandStatus{
				State:   v1.OperandProgressing,
				Desired: 3,
				Ready:   2,
				Version: "v0.20.0",
				Reason:  "OperandNotReady",
				Message: "ready on 2 of 3 nodes",
			},
		},
		"fails on nodes": {
			name: "device-plugin", change: func(e *env) { e.failPod(2, "device-plugin", ""); e.failPod(0, "device-plugin", "") },
			want: v1.OperandStatus{
				State: v1.OperandDegraded, Desired: 3, Ready: 1, Version: "v0.20.0", Reason: "OperandFailed",
				Message: "fails on 2 of 3 nodes: node-00000 (CrashLoopBackOff), node-00002 (CrashLoopBackOff)",
			},
		},
		"is disabled": {
			name: "device-plugin", change: func(e *env) { e.spec.DevicePlugin = &v1.DevicePluginSpec{Enabled: new(false)} },
			want: v1.OperandStatus{
				State:   v1.OperandDisabled,
				Reason:  "DisabledBySpec",
				Message: "spec.devicePlugin.enabled is false",
			},
		},
		"is excluded from a node": {
			name: "device-plugin", change: func(e *env) {
				e.setLabel(0, "nvidia.com/gpu.deploy.device-plugin", "false")
				e.snapshot.DaemonSets["device-plugin"].Status.DesiredNumberScheduled = 2
			},
			want: v1.OperandStatus{State: v1.OperandReady, Desired: 2, Ready: 2, Version: "v0.20.0"},
		},
		"is off without its admission policy": {
			name: "node-discovery", change: func(e *env) { e.removeAdmissionPolicies() },
			want: v1.OperandStatus{State: v1.OperandDisabled, Reason: "AdmissionPolicyMissing", Message: admissionPolicyMissing},
		},
		"waits for one that was not applied": {
			name: "device-plugin", change: func(e *env) {
				e.applied["device-plugin"] = ApplyResult{Err: fmt.Errorf(
					"needs runtime-classes, %w: see the message of runtime-classes in status.operands", ErrPrerequisite)}
			},
			want: v1.OperandStatus{
				State: v1.OperandWaiting, Desired: 3, Ready: 3, Version: "v0.20.0", Reason: "WaitingForOperand",
				Message: "needs runtime-classes, which was not applied: see the message of runtime-classes in status.operands",
			},
		},
		"differs while the policy is paused": {
			name: "device-plugin", change: func(e *env) { e.applied["device-plugin"] = ApplyResult{Pending: 2} },
			want: v1.OperandStatus{
				State: v1.OperandProgressing, Desired: 3, Ready: 3, Version: "v0.20.0", Reason: "Paused",
				Message: "2 of its objects differ from the spec and are not updated while spec.paused is true",
			},
		},
		"is altered by the API server": {
			name: "device-plugin", change: func(e *env) {
				e.applied["device-plugin"] = ApplyResult{Err: fmt.Errorf("DaemonSet a: %w", &apply.AlteredError{})}
			},
			want: v1.OperandStatus{
				State: v1.OperandError, Desired: 3, Ready: 3, Version: "v0.20.0", Reason: "Altered",
				Message: "DaemonSet a: " + (&apply.AlteredError{}).Error(),
			},
		},
		"keeps pods of an earlier template": {
			name: "device-plugin", change: func(e *env) {
				ds := e.snapshot.DaemonSets["device-plugin"]
				ds.Spec.UpdateStrategy.Type, ds.Status.UpdatedNumberScheduled = appsv1.OnDeleteDaemonSetStrategyType, 1
			},
			want: v1.OperandStatus{
				State: v1.OperandReady, Desired: 3, Ready: 3, Version: "v0.20.0",
				Message: "pods on 2 of 3 nodes get changed tolerations, priority, resources, registries, probes or labels " +
					"when they are next restarted",
			},
		},
		"rolls": {
			name: "device-plugin", change: func(e *env) {
				e.snapshot.DaemonSets["device-plugin"].Status.UpdatedNumberScheduled = 1
				e.pod(2, "device-plugin").Annotations[templateDigest] = "before"
			},
			want: v1.OperandStatus{
				State:   v1.OperandProgressing,
				Desired: 3,
				Ready:   3,
				Version: "v0.20.0",
				Reason:  "RollingOut",
				Message: "updated on 1 of 3 nodes",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 3)
			if test.change != nil {
				test.change(e)
			}
			test.want.Name = string(test.name)
			if diff := cmp.Diff(test.want, operandOf(t, e.status(), test.name)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestNodesAreSortedWorstFirst(t *testing.T) {
	e := newEnv(t, 5)
	e.startPod(1, "driver")
	e.failPod(3, "container-toolkit", "boom")
	e.setLabel(4, "nvidia.com/gpu.deploy.operands", "false")
	e.pod(2, "driver").Annotations[templateDigest] = "before"
	since, asOfNow := metav1.Unix(5, 0), metav1.NewTime(now)
	e.snapshot.Nodes[3].Object.Status.Conditions = append(e.snapshot.Nodes[3].Object.Status.Conditions,
		corev1.NodeCondition{Type: "nvidia.com/GPUReady", Status: corev1.ConditionFalse, LastTransitionTime: since})
	const pool = "ubuntu24.04-amd64"
	want := []v1.NodeStatus{
		{
			Name: "node-00003", Stage: v1.StageToolkit, Pool: pool, Operand: "container-toolkit",
			Pod: "container-toolkit-00003", Reason: "CrashLoopBackOff",
			Message: "container main: CrashLoopBackOff, exit code 1: boom", Since: &since,
		},
		{
			Name: "node-00001", Stage: v1.StageDriver, Pool: pool, Operand: "driver", Reason: "Starting",
			Message: "container main is not ready", Since: &asOfNow,
		},
		{
			Name: "node-00002", Ready: true, Stage: v1.StageValidated, Pool: pool, Operand: "driver", Reason: "UpgradePending",
			Message: "driver is outdated: kubectl annotate node node-00002 nvidia.com/gpu-driver-upgrade-requested=true",
		},
		{
			Name: "node-00004", Stage: v1.StageDiscovered, Pool: pool, Reason: "Excluded",
			Message: `label nvidia.com/gpu.deploy.operands is "false"`, Since: &asOfNow,
		},
		{Name: "node-00000", Ready: true, Stage: v1.StageValidated, Pool: pool},
	}
	status := e.status()
	if diff := cmp.Diff(want, status.Nodes); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	summary := &v1.NodeSummary{
		Total:        4,
		Ready:        2,
		Progressing:  1,
		Degraded:     1,
		Upgrading:    1,
		Excluded:     1,
		Listed:       5,
		ReadyOfTotal: "2/4",
	}
	if diff := cmp.Diff(summary, status.NodeSummary); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestStatusSizeIsBounded(t *testing.T) {
	size := func(nodes int) (int, v1.ClusterPolicyStatus) {
		e := newEnv(t, nodes)
		for i := range nodes {
			e.failPod(i, "driver", "boom")
		}
		status := e.status()
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

// Every operand of every node fails with the longest message. Each case takes a second: -short tries one of them, which
// chance selects.
func TestStatusSizeWhenAllNodesFail(t *testing.T) {
	tests := map[string]struct {
		length, listed int
		message        string
	}{
		"names of 63 characters":       {length: 63, message: "a ", listed: 100},
		"the longest names":            {length: 253, message: "a ", listed: 77},
		"characters that JSON escapes": {length: 63, message: "<\x00", listed: 36},
	}
	names := slices.Sorted(maps.Keys(tests))
	for _, i := range chance.Numbers(t, t.Name(), len(names), 1) {
		name, test := names[i], tests[names[i]]
		t.Run(name, func(t *testing.T) { brokenFleet(t, test.length, test.message, test.listed) })
	}
}

func brokenFleet(t *testing.T, length int, message string, listed int) {
	t.Helper()
	g := NewWithT(t)
	size := func(nodes int) int {
		e := newEnv(t, 0)
		e.snapshot.DaemonSets = newEnv(t, 1).snapshot.DaemonSets
		for i := range nodes {
			e.addNode(fmt.Sprintf("%s-%05d", strings.Repeat("n", length-6), i))
			e.setGPUReady(i, corev1.ConditionFalse, time.Hour)
			for name := range e.snapshot.DaemonSets {
				e.failPod(i, operand.Name(name), strings.Repeat(message, 500))
			}
		}
		status := e.status()
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

func TestWorstNodesAreListed(t *testing.T) {
	e := newEnv(t, 150)
	e.failPod(149, "driver", "boom")
	e.startPod(148, "driver")
	status := e.status()
	if status.Nodes[0].Name != "node-00149" || status.Nodes[1].Name != "node-00148" {
		t.Errorf("the list begins with %s and %s", status.Nodes[0].Name, status.Nodes[1].Name)
	}
}

func TestNodeMessageIsKeptForTheSameCause(t *testing.T) {
	e := newEnv(t, 1)
	e.failPod(0, "driver", "attempt 1")
	first := e.status()
	e.failPod(0, "driver", "attempt 2")
	second := e.status(first)
	if diff := cmp.Diff(first.Nodes, second.Nodes); diff != "" {
		t.Errorf("-first +second:\n%s", diff)
	}
	e.failPod(0, "driver", "")
	if got := e.status(second).Nodes[0].Message; got != first.Nodes[0].Message {
		t.Errorf("an attempt without output removes the detail: %q", got)
	}
	tests := map[string]func(*env){
		"it comes from another operand": func(e *env) {
			e.pod(0, "driver").Status.Conditions[1].Status = corev1.ConditionTrue
			e.failPod(0, "container-toolkit", "attempt 3")
		},
		"it comes from another pod": func(e *env) {
			e.pod(0, "driver").Name = "another"
			e.failPod(0, "driver", "attempt 3")
		},
		"it is another reason": func(e *env) {
			e.pod(0, "driver").Status.ContainerStatuses[0].State = corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"},
			}
		},
		"the node works": func(e *env) { e.pod(0, "driver").Status.Conditions[1].Status = corev1.ConditionTrue },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			other := newEnv(t, 1)
			other.failPod(0, "driver", "attempt 2")
			change(other)
			if got := other.status(second).Nodes[0].Message; got == first.Nodes[0].Message {
				t.Errorf("the message is still %q", got)
			}
		})
	}
}

func TestNodeMessageGetsTheFirstDetail(t *testing.T) {
	e := newEnv(t, 1)
	e.failPod(0, "driver", "")
	silent := e.status()
	e.failPod(0, "driver", "no GPU")
	if got := e.status(silent).Nodes[0].Message; !strings.HasSuffix(got, "exit code 1: no GPU") {
		t.Errorf("the message is %q", got)
	}
}

func TestNodeMessageIsTruncated(t *testing.T) {
	e := newEnv(t, 1)
	e.failPod(0, "driver", strings.Repeat("日本語", 100))
	message := e.status().Nodes[0].Message
	if len(message) > 256 || len(message) < 250 || !utf8.ValidString(message) || !strings.HasSuffix(message, "日本語") {
		t.Errorf("%d bytes: %q", len(message), message)
	}
	e.failPod(0, "driver", "a program that quotes "+strings.Repeat("much ", 60)+"and cannot open /dev/nvidiactl")
	if message := e.status().Nodes[0].Message; !strings.HasPrefix(message, "container main: ") ||
		!strings.HasSuffix(message, "and cannot open /dev/nvidiactl") {
		t.Errorf("the cause is at the end: %q", message)
	}
}

// named returns a policy with this name and finalizers.
func named(name string, finalizers ...string) *v1.ClusterPolicy {
	return &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
}

func TestIgnored(t *testing.T) {
	policy := &v1.ClusterPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "second", Generation: 3},
		Status:     newEnv(t, 3).status(),
	}
	policy.Status.Conditions = append(policy.Status.Conditions, metav1.Condition{
		Type: "Other", Status: metav1.ConditionTrue, Reason: "OfAnotherWriter",
	})
	status := Ignored(policy, namespace, named("first"))
	if status.Namespace != namespace || status.State != v1.StateIgnored || status.ObservedGeneration != 3 ||
		len(status.Nodes)+len(status.Operands) != 0 || status.NodeSummary != nil {
		t.Errorf("got %+v", status)
	}
	want := map[string]string{
		"Ready":       "False Ignored",
		"Progressing": "False None",
		"Degraded":    "False None",
		"Error":       "True Ignored",
		"Stalled":     "True Ignored",
		"Other":       "True OfAnotherWriter",
	}
	if diff := cmp.Diff(want, conditionsOf(status)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := ready(status).Message; got !=
		"ClusterPolicy first is active and takes precedence, so this one has no effect: delete one of them" {
		t.Errorf("got %q", got)
	}
}

func TestInputFailed(t *testing.T) {
	e := newEnv(t, 1)
	if e.input().Conflicts() {
		t.Error("there is no conflict")
	}
	e.applied["driver"] = ApplyResult{Err: fmt.Errorf("x %w", apply.ErrConflict)}
	e.applied["device-plugin"] = ApplyResult{Err: fmt.Errorf("%w: y", ErrPrerequisite)}
	e.applied["container-toolkit"] = ApplyResult{Err: fmt.Errorf("%w: z", ErrNotTakenOver)}
	got := operandOf(t, e.status(), "container-toolkit")
	if got.State != v1.OperandWaiting || got.Reason != "NotTakenOver" {
		t.Errorf("an operand that is not taken over is %s: %s", got.State, got.Reason)
	}
	if !e.input().Conflicts() {
		t.Error("the conflict does not count")
	}
	if e.input().NeedsRetry() {
		t.Error("a conflict counts as a failed call")
	}
	e.applied["operator-validator"] = ApplyResult{Err: errors.New("timeout")}
	if !e.input().NeedsRetry() {
		t.Error("a failed call of an operand does not count")
	}
	delete(e.applied, "operator-validator")
	e.err = errors.New("pruning failed")
	if !e.input().NeedsRetry() {
		t.Error("a failed call outside the operands does not count")
	}
}
