package status

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/fleet"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/nvidiadriver"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

func TestNVIDIADriver(t *testing.T) { //nolint:gocyclo // It is a table with its loop.
	all := v1alpha1.NVIDIADriverSpec{}
	inTeam := v1alpha1.NVIDIADriverSpec{NodeSelector: v1.NodePoolSelector{"team": "a"}}
	for name, test := range map[string]struct {
		spec   v1alpha1.NVIDIADriverSpec
		others map[string]v1alpha1.NVIDIADriverSpec
		change func(*env)
		// want is the state, and the status, reason and message of the condition Ready.
		want string
	}{
		"ready": {
			spec: all, want: "ready True Reconciled: the driver is ready on 2 of 2 nodes",
		},
		"a driver starts": {
			spec: all, change: func(e *env) { e.startPod(1, "driver") },
			want: "notReady False Starting: the driver is ready on 1 of 2 nodes; node-00001: container main is not ready",
		},
		"another operand fails": {
			spec: all, change: func(e *env) { e.failPod(1, "device-plugin", "no GPU") },
			want: "ready True Reconciled: the driver is ready on 2 of 2 nodes",
		},
		"an outdated driver on a node that has lost a GPU": {
			spec: all, change: func(e *env) {
				e.pod(1, "driver").Annotations[templateDigest] = "before"
				e.snapshot.Nodes[1].Object.Status.Capacity = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("9")}
			},
			want: "notReady False GPUsUnhealthy: the driver is ready on 1 of 2 nodes; node-00001: 8 of 9 GPUs usable: the " +
				"device plugin reports 1 of 9 nvidia.com/gpu as unhealthy; driver is outdated: its upgrade is pending",
		},
		"another driver than that of the nodes": {
			spec: v1alpha1.NVIDIADriverSpec{ImageSpec: v1.ImageSpec{Version: "590.44.01"}},
			want: "notReady False UpgradePending: the driver is ready on 0 of 2 nodes; node-00000: " +
				"driver is outdated: its upgrade is pending; it moves from ubuntu24.04-amd64 to ubuntu24.04-amd64-under-test",
		},
		"a node that is not supported": {
			spec: v1alpha1.NVIDIADriverSpec{CertConfig: &v1alpha1.ConfigMapSpec{Name: "certs"}},
			change: func(e *env) {
				e.setLabel(0, "feature.node.kubernetes.io/system-os_release.ID", "arch")
				e.setLabel(0, "nvidia.com/gpu-operator.pool", "arch24.04-amd64")
				delete(e.snapshot.Pods["node-00000"], "driver")
			},
			want: "notReady False NotSupportedYet: the driver is ready on 0 of 2 nodes; node-00000: spec.repoConfig and " +
				"spec.certConfig are not supported on arch24.04: remove them, and use a driver image that contains these files",
		},
		"no node": {spec: inTeam, want: "ready True NoGPUNodes: no GPU node is selected"},
		"a conflict": {
			spec: all, others: map[string]v1alpha1.NVIDIADriverSpec{"a": all},
			want: "notReady Stalled False ConflictingNodeSelector: " +
				"NVIDIADrivers a and under-test select node node-00000: change one nodeSelector",
		},
		"others conflict": {
			spec: inTeam, others: map[string]v1alpha1.NVIDIADriverSpec{"a": all, "b": all},
			want: "ready True NoGPUNodes: no GPU node is selected",
		},
		"two defaults": {
			spec:   v1alpha1.NVIDIADriverSpec{Default: true},
			others: map[string]v1alpha1.NVIDIADriverSpec{"z": {Default: true}},
			want: "notReady Stalled False ConflictingNodeSelector: " +
				"NVIDIADrivers under-test and z select node node-00000: change one nodeSelector",
		},
		"a type that is not supported": {
			spec: v1alpha1.NVIDIADriverSpec{DriverType: v1alpha1.DriverTypeVGPUHostManager},
			want: "notReady Stalled False NotSupportedYet: NVIDIADriver under-test: spec.driverType: " +
				"vgpu-host-manager is not supported yet: remove the object, or set gpu or vgpu in another one",
		},
		"a field without effect": {
			spec: v1alpha1.NVIDIADriverSpec{NodeAffinity: &corev1.NodeAffinity{}},
			want: "ready True Reconciled: the driver is ready on 2 of 2 nodes; " +
				"spec.nodeAffinity has no effect, as in NVIDIA's operator: use nodeSelector",
		},
		"the policy does not use the objects": {
			spec: all, change: func(e *env) { e.spec.Driver.UseNvidiaDriverCRD = nil }, want: "disabled False Reconciled: " +
				"no ClusterPolicy uses NVIDIADrivers: " +
				"set spec.driver.enabled and spec.driver.useNvidiaDriverCRD of the active one",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 2)
			e.spec.Driver = &v1.DriverSpec{UseNvidiaDriverCRD: new(true)}
			if test.change != nil {
				test.change(e)
			}
			object := driverObject("under-test", test.spec)
			objects := []v1alpha1.NVIDIADriver{object}
			for other, spec := range test.others {
				objects = append(objects, driverObject(other, spec))
			}
			status := NVIDIADriver(&object, e.driverInput(objects))
			ready, failed := status.Conditions[0], status.Conditions[1]
			got := string(status.State)
			if len(status.Conditions) > 2 {
				stalled := status.Conditions[2]
				if stalled.Type != "Stalled" || stalled.Status != metav1.ConditionTrue || stalled.Reason != ready.Reason {
					t.Errorf("unexpected condition %+v", stalled)
				}
				got += " Stalled"
			}
			got += " " + string(ready.Status) + " " + ready.Reason + ": " + ready.Message
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if ready.Type != "Ready" || failed.Type != "Error" || ready.Status == failed.Status ||
				ready.Reason != failed.Reason || ready.Message != failed.Message {
				t.Errorf("the condition Error is not the inverse of Ready: %+v", status.Conditions)
			}
			object.Status = status
			if diff := cmp.Diff(status, NVIDIADriver(&object, e.driverInput(objects))); diff != "" {
				t.Errorf("the next pass changes the status:\n%s", diff)
			}
		})
	}
}

func driverObject(name string, spec v1alpha1.NVIDIADriverSpec) v1alpha1.NVIDIADriver {
	return v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3}, Spec: spec}
}

// driverInput returns the input for these objects.
func (e *env) driverInput(objects []v1alpha1.NVIDIADriver) DriverInput {
	decisions := plan.Decide(e.catalogue, operand.Input{
		Spec: effective.Of(e.spec), Namespace: namespace, NVIDIADrivers: nvidiadriver.Declared(e.spec, objects),
	})
	in := DriverInput{Namespace: namespace, Decisions: decisions}
	for i := range e.snapshot.Nodes {
		entry := e.entry(decisions, i)
		entry.Planned = &fleet.PlannedNode{NodePlan: decisions.ForNode(entry.Facts)}
		in.View.Nodes = append(in.View.Nodes, entry)
	}
	return in
}

// A node whose driver no object declares, or several, keeps it and stays ready, with the reason.
func TestNodeThatKeepsItsDriver(t *testing.T) {
	e := newEnv(t, 1)
	e.spec.Driver = &v1.DriverSpec{UseNvidiaDriverCRD: new(true)}
	for reason, objects := range map[string][]v1alpha1.NVIDIADriver{
		v1.ReasonNoNVIDIADriver: {},
		v1.ReasonConflictingNodeSelector: {
			driverObject("a", v1alpha1.NVIDIADriverSpec{}), driverObject("b", v1alpha1.NVIDIADriverSpec{}),
		},
		"": {driverObject("a", v1alpha1.NVIDIADriverSpec{})},
	} {
		if got := e.driverInput(objects).View.Nodes[0].Latest; !got.Ready() || got.Reason != reason {
			t.Errorf("%q: ready %t, reason %q, message %q", reason, got.Ready(), got.Reason, got.Message)
		}
	}
}

// The operand shows the pods that run although no object, or several, declare the driver of their node, and the nodes
// that get none therefore.
func TestDriverThatNoObjectDeclares(t *testing.T) {
	const noObject = "no NVIDIADriver selects the node: change a nodeSelector, or create one with default: true"
	others := v1alpha1.NVIDIADriverSpec{NodeSelector: v1.NodePoolSelector{"team": "b"}}
	running := func(e *env) {
		for i := range e.snapshot.Nodes {
			e.setLabel(i, "nvidia.com/gpu.deploy.driver", "true")
		}
	}
	for name, test := range map[string]struct {
		change  func(*env)
		objects []v1alpha1.NVIDIADriver
		// want is the state and reason of the operand, its counts and its message.
		want, ready string
	}{
		"pods run, and there is no object": {
			change: running,
			want: "Waiting NoNVIDIADriver 2/2: its pods stay as they are on 2 of 2 nodes: node-00000 (NoNVIDIADriver), " +
				"node-00001 (NoNVIDIADriver); node-00000: " + noObject,
			ready: "False NoNVIDIADriver",
		},
		"pods run, and one node is selected": {
			change:  func(e *env) { running(e); e.setLabel(1, "team", "b") },
			objects: []v1alpha1.NVIDIADriver{driverObject("b", others)},
			want: "Waiting NoNVIDIADriver 2/2: its pods stay as they are on 1 of 2 nodes: node-00000 (NoNVIDIADriver); " +
				"node-00000: " + noObject,
			ready: "False NoNVIDIADriver",
		},
		"pods run, and two objects select one node": {
			change: func(e *env) { running(e); e.setLabel(1, "team", "b") },
			objects: []v1alpha1.NVIDIADriver{
				driverObject("a", others), driverObject("b", others),
				driverObject("rest", v1alpha1.NVIDIADriverSpec{Default: true}),
			},
			want: "Waiting ConflictingNodeSelector 2/2: its pods stay as they are on 1 of 2 nodes: " +
				"node-00001 (ConflictingNodeSelector); node-00001: NVIDIADrivers a and b select the node: change one nodeSelector",
			ready: "False ConflictingNodeSelector",
		},
		"one of the pods fails": {
			change: func(e *env) { running(e); e.failPod(1, "driver", "") },
			want:   "Degraded OperandFailed 1/2: fails on 1 of 2 nodes: node-00001 (CrashLoopBackOff)",
			ready:  "False OperandFailed",
		},
		"no pod runs": {
			change: func(e *env) {
				for i := range e.snapshot.Nodes {
					delete(e.snapshot.Pods[e.snapshot.Nodes[i].Facts.Name], "driver")
					delete(e.snapshot.Nodes[i].Object.Labels, "nvidia.com/gpu-operator.pool")
					e.setLabel(i, "team", "a")
				}
				delete(e.snapshot.DaemonSets, "driver")
			},
			want:  "Waiting NoNVIDIADriver 0/2: no node gets it: node-00000: " + noObject,
			ready: "False OperandFailed",
		},
		"an object declares it": {
			change: running, objects: []v1alpha1.NVIDIADriver{driverObject("all", v1alpha1.NVIDIADriverSpec{})},
			want: "Ready  2/2: ", ready: "True Reconciled",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 2)
			e.spec.Driver, e.drivers = &v1.DriverSpec{UseNvidiaDriverCRD: new(true)}, test.objects
			test.change(e)
			status := e.status()
			o := operandOf(t, status, "driver")
			if got := fmt.Sprintf("%s %s %d/%d: %s", o.State, o.Reason, o.Ready, o.Desired, o.Message); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			// Objects that contradict each other are for a person to mend; a node that none selects may be one of many.
			stalled := strings.HasSuffix(test.ready, v1.ReasonConflictingNodeSelector)
			if got := condition(status, v1.ConditionStalled).Status; (got == metav1.ConditionTrue) != stalled {
				t.Errorf("the condition Stalled is %q", got)
			}
			if got := ready(status); string(got.Status)+" "+got.Reason != test.ready {
				t.Errorf("Ready is %s %s %q, want %s", got.Status, got.Reason, got.Message, test.ready)
			}
		})
	}
}
