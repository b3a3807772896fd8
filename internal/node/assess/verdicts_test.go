package assess_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/node/readiness"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
	"github.com/clusterpolicy/gpu-operator/test/golden"
)

// stackNode is a node on which all operands of a small stack are ready, since a minute, with their DaemonSets.
func stackNode() *assess.Input {
	eight := map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}
	in := &assess.Input{
		NodePlan: plan.NodePlan{
			Facts: nodeinfo.Facts{Name: "a", HasGPU: true, HasDiscoveryLabels: true}, Spec: effective.Of(v1.ClusterPolicySpec{}),
			NeedsAllocatable: true,
			Essential: []plan.OperandOnNode{
				{Operand: "driver", Stage: v1.StageDriver}, {Operand: "container-toolkit", Stage: v1.StageToolkit},
				{Operand: "device-plugin", Stage: v1.StageDevicePlugin}, {Operand: "operator-validator", Stage: v1.StageValidated},
			},
			Auxiliary: []plan.OperandOnNode{{Operand: "dcgm-exporter"}, {Operand: "mig-manager"}},
		},
		Node: gpuNode(eight, eight), Now: begin, Pods: assess.Pods{},
		Stack: assess.Stack{DaemonSets: map[string]*appsv1.DaemonSet{}, CreateFailures: map[string]assess.PodFailure{}},
	}
	in.Node.UID, in.Node.Annotations = "u", map[string]string{}
	for _, onNode := range slices.Concat(in.NodePlan.Essential, in.NodePlan.Auxiliary) {
		name := string(onNode.Operand)
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
			Name: "ds-" + name, Labels: map[string]string{labels.Operand: name},
			Annotations: map[string]string{labels.TemplateDigest: "current"},
		}}
		ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: name + "-ctr"}, {Name: "other"}}
		if name == "driver" || name == "mig-manager" {
			ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		}
		in.Stack.DaemonSets[ds.Name] = ds
		pod := readyPod()
		pod.Namespace, pod.Name, pod.UID = "n", name+"-x", "pod-of-"+ds.UID
		pod.Annotations = map[string]string{labels.TemplateDigest: "current"}
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: ds.Name, Controller: new(true)}}
		pod.Status.Conditions[1].LastTransitionTime = metav1.NewTime(begin.Add(-time.Minute))
		in.Pods[onNode.Operand] = pod
	}
	return in
}

// describe returns all of an assessment that is not zero, as text.
func describe(a *assess.Assessment) string {
	condition := a.Condition("a")
	lines := []string{fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)}
	var facts []string
	for fact, holds := range map[string]bool{
		"ready": a.Ready(), "usable": a.Usable, "in service": a.InService(), "excluded": a.Excluded,
		"names neighbours": a.NamesNeighbours(),
		"nothing offers":   a.NothingOffers, "MIG overdue": a.IsMIGOverdue(), "lasting detail": a.DetailLasts,
	} {
		if holds {
			facts = append(facts, fact)
		}
	}
	slices.Sort(facts)
	lines = append(lines, fmt.Sprintf("  stage %s %q, %s; %d of %d GPUs %q; %s", a.Stage, a.Operand, words(a.Verdict),
		a.GPUs.Usable, a.GPUs.Total, a.Offer, strings.Join(facts, ", ")))
	if !a.ForeignSince.IsZero() {
		lines = append(lines, "  foreign since "+a.ForeignSince.Sub(begin).String())
	}
	var ready []string
	for _, name := range slices.Sorted(maps.Keys(a.Operands)) {
		verdict := a.Operands[name]
		if verdict == (readiness.Verdict{}) {
			ready = append(ready, string(name))
			continue
		}
		lines = append(lines, fmt.Sprintf("  %s: %s: %s", name, words(verdict), verdict.Message))
	}
	lines = append(lines, "  as they should: "+strings.Join(ready, ", "))
	return strings.Join(lines, "\n") + "\n"
}

// words describes a verdict without its message.
func words(v readiness.Verdict) string {
	text := fmt.Sprint(v.State, " ", v.Reason)
	for i, holds := range []bool{v.Outdated, v.BeingReplaced, v.Overdue} {
		if holds {
			text += []string{" outdated", " replaced", " overdue"}[i]
		}
	}
	if v.Detail != "" {
		text += " (" + v.Detail + ")"
	}
	if !v.Until.IsZero() {
		text += " until " + v.Until.Sub(begin).String()
	}
	return text
}

// unready makes the pod of an operand one that starts, since that long before.
func unready(in *assess.Input, name operand.Name, since time.Duration) {
	condition := &in.Pods[name].Status.Conditions[1]
	condition.Status, condition.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(begin.Add(-since))
	in.Pods[name].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(begin.Add(-since))},
	}}}
}

// awaitSandbox sets whether the pod of the driver has a sandbox.
func awaitSandbox(in *assess.Input, has corev1.ConditionStatus) {
	status := &in.Pods["driver"].Status
	status.Conditions = append(status.Conditions, corev1.PodCondition{
		Type: corev1.PodReadyToStartContainers, Status: has,
	})
}

// failToStart makes an Event of the kubelet report that the pod of an operand does not start.
func failToStart(in *assess.Input, name operand.Name, reason string) {
	in.Pods[name].UID = types.UID(name)
	message := map[string]string{
		"FailedMount": `configmap "x" not found`, "FailedCreatePodSandBox": `no runtime for "nvidia" is configured`,
		"NetworkNotReady": "cni plugin not initialized",
	}[reason]
	in.Stack.StartFailures = map[types.UID]assess.PodFailure{in.Pods[name].UID: assess.StartFailure(
		&corev1.Event{Reason: reason, Message: message},
	)}
}

func fail(in *assess.Input, name operand.Name) {
	unready(in, name, 0)
	in.Pods[name].Status.ContainerStatuses[0].State = corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "boom"},
	}
}

// on returns an operand of the plan.
func on(in *assess.Input, name operand.Name) *plan.OperandOnNode {
	for _, operands := range [][]plan.OperandOnNode{in.NodePlan.Essential, in.NodePlan.Auxiliary} {
		for i := range operands {
			if operands[i].Operand == name {
				return &operands[i]
			}
		}
	}
	panic(name)
}

// expect changes what is expected of an operand.
func expect(in *assess.Input, name operand.Name, expectation plan.Expectation, reason string) {
	onNode := on(in, name)
	onNode.Expectation, onNode.Reason, onNode.Message = expectation, reason, "message of "+string(name)
}

func outdate(in *assess.Input, names ...operand.Name) {
	for _, name := range names {
		in.Pods[name].Annotations[labels.TemplateDigest] = "earlier"
	}
}

func withoutGPUs(in *assess.Input) {
	clear(in.Node.Status.Allocatable)
}

// missingSince annotates the node with the time since when discovery labels are missing.
func missingSince(in *assess.Input) {
	in.NodePlan.MissingLabels = "labels are missing"
	in.Node.Annotations[labels.DiscoveryMissingSince] = begin.Add(-time.Hour).In(time.FixedZone("x", 3600)).
		Format(time.RFC3339)
}

func paused(in *assess.Input, state string) {
	expect(in, "device-plugin", plan.PausedByLabel, v1.ReasonOperandPaused)
	in.Node.Labels[labels.MIGConfig], in.Node.Labels[labels.MIGConfigState] = "all-1g.10gb", state
	in.Node.Labels[operand.Name("device-plugin").DeployLabel()] = labels.DeployPausedForMIG
}

// inUpgrade gives the node the label and the record of a driver upgrade in this state.
func inUpgrade(in *assess.Input, state string) {
	in.Node.Labels[labels.UpgradeState] = state
	in.Node.Annotations[labels.UpgradeRecord] = `{"uid":"u","round":1,"state":"` + state + `","message":"of the record"}`
}

// verdictCases change a node on which all is ready.
func verdictCases() map[string]func(*assess.Input) {
	return map[string]func(*assess.Input){
		"all is ready": func(*assess.Input) {},
		"excluded by a label, though refused": func(in *assess.Input) {
			in.NodePlan.Facts.ExcludedByLabel = true
			in.NodePlan.Decision = operand.Refuse("Reason", "message")
		},
		"refused, though not selected": func(in *assess.Input) {
			in.NodePlan.Decision, in.NodePlan.Unselected = operand.Refuse("Reason", "message"), "not selected"
		},
		"not selected":          func(in *assess.Input) { in.NodePlan.Unselected = "no selector" },
		"the kubelet is silent": func(in *assess.Input) { in.Node.Status.Conditions[0].Status = corev1.ConditionUnknown },
		"the kubelet is not ready": func(in *assess.Input) {
			in.Node.Status.Conditions[0].Status = corev1.ConditionFalse
			missingSince(in)
		},

		"the host provides the driver": func(in *assess.Input) {
			expect(in, "driver", plan.HostProvides, "")
			delete(in.Pods, "driver")
		},
		"operands are turned off": func(in *assess.Input) {
			expect(in, "driver", plan.OptedOut, v1.ReasonNotSelected)
			expect(in, "dcgm-exporter", plan.OptedOut, v1.ReasonNotSelected)
			expect(in, "mig-manager", plan.OptedOut, "")
		},
		"an auxiliary operand is left to the host": func(in *assess.Input) {
			expect(in, "dcgm-exporter", plan.HostProvides, "")
		},
		"an operand is turned off by a nodeSelector beside another cause": func(in *assess.Input) {
			expect(in, "dcgm-exporter", plan.OptedOut, v1.ReasonNotSelected)
			in.NodePlan.PluginConfig = operand.ConfigProblem{Message: "no such key"}
		},
		"a driver is retained": func(in *assess.Input) {
			in.NodePlan.RetainedDriver = "it is retained"
			expect(in, "dcgm-exporter", plan.OptedOut, v1.ReasonNotSelected)
		},
		"a driver that failed is retained": func(in *assess.Input) {
			in.NodePlan.RetainedDriver = "it is retained"
			fail(in, "driver")
		},
		"no NVIDIADriver, and the driver works": func(in *assess.Input) {
			expect(in, "driver", plan.Refused, v1.ReasonNoNVIDIADriver)
			outdate(in, "driver")
		},
		"no NVIDIADriver, and the driver starts": func(in *assess.Input) {
			expect(in, "driver", plan.Refused, v1.ReasonNoNVIDIADriver)
			unready(in, "driver", time.Minute)
		},
		"no NVIDIADriver, and no driver": func(in *assess.Input) {
			expect(in, "driver", plan.Refused, v1.ReasonConflictingNodeSelector)
			delete(in.Pods, "driver")
		},
		"a driver is refused, and works": func(in *assess.Input) { expect(in, "driver", plan.Refused, "Reason") },
		"an exporter is refused": func(in *assess.Input) {
			expect(in, "dcgm-exporter", plan.Refused, "Reason")
			delete(in.Pods, "dcgm-exporter")
		},
		"an exporter is paused": func(in *assess.Input) { expect(in, "dcgm-exporter", plan.PausedByLabel, "Reason") },
		"the driver is paused":  func(in *assess.Input) { expect(in, "driver", plan.PausedByLabel, v1.ReasonOperandPaused) },

		"pods are outdated": func(in *assess.Input) {
			outdate(in, "driver", "container-toolkit", "dcgm-exporter", "mig-manager")
		},
		"an outdated driver starts":  func(in *assess.Input) { outdate(in, "driver"); unready(in, "driver", time.Minute) },
		"pods of deleted DaemonSets": func(in *assess.Input) { clear(in.Stack.DaemonSets) },
		"pods without a controller": func(in *assess.Input) {
			in.Pods["driver"].OwnerReferences = nil
			outdate(in, "driver")
		},
		"no DaemonSet of the operand": func(in *assess.Input) { clear(in.Stack.DaemonSets); delete(in.Pods, "driver") },
		"its DaemonSet is being deleted": func(in *assess.Input) {
			in.Stack.DaemonSets["ds-driver"].DeletionTimestamp = &metav1.Time{Time: begin}
			delete(in.Pods, "driver")
		},
		"no DaemonSet selects the node": func(in *assess.Input) {
			in.Stack.DaemonSets["ds-driver"].Spec.Template.Spec.NodeSelector = map[string]string{"a": "b"}
			delete(in.Pods, "driver")
		},
		"several DaemonSets select the node": func(in *assess.Input) {
			for _, name := range []string{"b-driver", "z-driver", "a-driver"} {
				ds := in.Stack.DaemonSets["ds-driver"].DeepCopy()
				ds.Name = name
				in.Stack.DaemonSets[name] = ds
			}
			in.Stack.DaemonSets["a-driver"].Spec.Template.Spec.NodeSelector = map[string]string{"a": "b"}
			delete(in.Pods, "driver")
		},
		"a DaemonSet cannot create pods": func(in *assess.Input) {
			in.Stack.CreateFailures["ds-driver"] = assess.PodFailure{Reason: "QuotaExceeded", Message: "exceeded quota"}
			delete(in.Pods, "driver")
		},
		"a DaemonSet cannot create pods, and does not tolerate a taint": func(in *assess.Input) {
			in.Stack.CreateFailures["ds-driver"] = assess.PodFailure{Reason: "QuotaExceeded", Message: "exceeded quota"}
			in.Node.Spec.Taints = []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectNoSchedule}}
			delete(in.Pods, "driver")
		},

		"the runtime has no handler": func(in *assess.Input) {
			unready(in, "device-plugin", 0)
			in.Pods["device-plugin"].Spec.RuntimeClassName = new("nvidia")
			in.Pods["device-plugin"].Status.Conditions = append(in.Pods["device-plugin"].Status.Conditions, corev1.PodCondition{
				Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse,
			})
		},
		"the runtime has no handler, as the kubelet reports": func(in *assess.Input) {
			verdictCase("the runtime has no handler")(in)
			failToStart(in, "device-plugin", "FailedCreatePodSandBox")
		},
		"a volume of a pod with a RuntimeClass cannot be mounted": func(in *assess.Input) {
			verdictCase("the runtime has no handler")(in)
			failToStart(in, "device-plugin", "FailedMount")
		},
		"the network of a pod with a RuntimeClass is not ready": func(in *assess.Input) {
			verdictCase("the runtime has no handler")(in)
			failToStart(in, "device-plugin", "NetworkNotReady")
		},
		"a volume cannot be mounted": func(in *assess.Input) {
			unready(in, "driver", 0)
			awaitSandbox(in, corev1.ConditionFalse)
			failToStart(in, "driver", "FailedMount")
		},
		"a volume of another pod cannot be mounted": func(in *assess.Input) {
			unready(in, "driver", 0)
			awaitSandbox(in, corev1.ConditionFalse)
			failToStart(in, "device-plugin", "FailedMount")
		},
		"a volume could not be mounted before the sandbox was created": func(in *assess.Input) {
			unready(in, "driver", 0)
			awaitSandbox(in, corev1.ConditionTrue)
			failToStart(in, "driver", "FailedMount")
		},
		"a volume could not be mounted before a crash": func(in *assess.Input) {
			fail(in, "driver")
			awaitSandbox(in, corev1.ConditionFalse)
			failToStart(in, "driver", "FailedMount")
		},
		"the runtime has had the handler since": func(in *assess.Input) {
			verdictCase("the runtime has no handler")(in)
			in.Pods["operator-validator"].Spec.RuntimeClassName = new("nvidia")
			in.Pods["container-toolkit"].Status.Conditions[1].LastTransitionTime = metav1.NewTime(begin.Add(-2 * time.Minute))
		},
		"the runtime had the handler before": func(in *assess.Input) {
			verdictCase("the runtime has no handler")(in)
			in.Pods["operator-validator"].Spec.RuntimeClassName = new("nvidia")
		},
		"the runtime has no handler, and the toolkit is paused": func(in *assess.Input) {
			verdictCase("the runtime has no handler")(in)
			expect(in, "container-toolkit", plan.PausedByLabel, v1.ReasonOperandPaused)
		},
		"the runtime has no handler, and the toolkit has no DaemonSet": func(in *assess.Input) {
			verdictCase("the runtime has no handler")(in)
			delete(in.Stack.DaemonSets, "ds-container-toolkit")
		},

		"the driver starts": func(in *assess.Input) { unready(in, "driver", time.Minute) },
		"the driver has been starting for too long": func(in *assess.Input) {
			unready(in, "driver", time.Hour)
			in.Previous = assess.ReadySince{Since: begin.Add(-time.Hour)}
		},
		"the plugin starts, after the toolkit": func(in *assess.Input) {
			unready(in, "device-plugin", time.Hour)
			in.Previous = assess.ReadySince{Since: begin.Add(-time.Hour)}
		},
		"the driver starts on a node that was ready": func(in *assess.Input) {
			unready(in, "driver", time.Hour)
			in.Previous = assess.ReadySince{Ready: true, Since: begin.Add(-time.Hour)}
		},
		"an exporter starts": func(in *assess.Input) { unready(in, "dcgm-exporter", time.Minute) },
		"an exporter has been starting for too long": func(in *assess.Input) {
			unready(in, "dcgm-exporter", time.Hour)
			in.Previous = assess.ReadySince{Ready: true, Since: begin.Add(-2 * time.Hour)}
		},
		"an exporter starts on a node that has long been ready": func(in *assess.Input) {
			unready(in, "dcgm-exporter", time.Minute)
			in.Previous = assess.ReadySince{Ready: true, Since: begin.Add(-2 * time.Hour)}
		},
		"a refused exporter has been starting": func(in *assess.Input) {
			unready(in, "dcgm-exporter", time.Hour)
			expect(in, "dcgm-exporter", plan.Refused, "Reason")
			in.Previous = assess.ReadySince{Ready: true, Since: begin.Add(-2 * time.Hour)}
		},
		"an exporter has no pod": func(in *assess.Input) {
			delete(in.Pods, "dcgm-exporter")
			in.Previous = assess.ReadySince{Ready: true, Since: begin.Add(-2 * time.Hour)}
		},
		"an operand has been paused for long": func(in *assess.Input) {
			expect(in, "driver", plan.PausedByLabel, v1.ReasonOperandPaused)
			in.Previous = assess.ReadySince{Since: begin.Add(-time.Hour)}
		},

		"labels are missing, and all is ready": missingSince,
		"labels are missing, and they are all": func(in *assess.Input) {
			missingSince(in)
			in.NodePlan.Facts = nodeinfo.Facts{Name: "a", WasGPU: true}
		},
		"labels are missing, and so is the GPU": func(in *assess.Input) {
			missingSince(in)
			in.NodePlan.Facts = nodeinfo.Facts{Name: "a", WasGPU: true}
			in.Node.Annotations[labels.DiscoveryLostSince] = begin.Format(time.RFC3339)
		},
		"labels are missing, and the driver is outdated": func(in *assess.Input) { missingSince(in); outdate(in, "driver") },
		"labels are missing, and an operand failed":      func(in *assess.Input) { missingSince(in); fail(in, "driver") },
		"labels are missing, and an operand starts": func(in *assess.Input) {
			missingSince(in)
			unready(in, "driver", 0)
		},
		"labels are missing, and GPUs are not offered": func(in *assess.Input) { missingSince(in); withoutGPUs(in) },
		"labels are missing since an unknown time": func(in *assess.Input) {
			missingSince(in)
			in.Node.Annotations[labels.DiscoveryMissingSince] = "yesterday"
		},
		"labels are no longer missing": func(in *assess.Input) { missingSince(in); in.NodePlan.MissingLabels = "" },

		"GPUs are not offered": withoutGPUs,
		"GPUs are not offered, and the plugin has no DaemonSet": func(in *assess.Input) {
			withoutGPUs(in)
			delete(in.Stack.DaemonSets, "ds-device-plugin")
		},
		"GPUs are not offered, and the driver is off": func(in *assess.Input) {
			withoutGPUs(in)
			expect(in, "driver", plan.OptedOut, "")
		},
		"no plugin": func(in *assess.Input) {
			withoutGPUs(in)
			expect(in, "device-plugin", plan.OptedOut, "")
			delete(in.Pods, "device-plugin")
		},
		"no plugin, and the validator fails": func(in *assess.Input) {
			verdictCase("no plugin")(in)
			fail(in, "operator-validator")
		},
		"no GPU is needed": func(in *assess.Input) {
			withoutGPUs(in)
			in.NodePlan.NeedsAllocatable = false
		},
		"GPUs are lost before they are offered": func(in *assess.Input) {
			unready(in, "device-plugin", 0)
		},
		"a GPU is unhealthy": func(in *assess.Input) {
			in.Node.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("7")
		},

		"pods were refused": func(in *assess.Input) { in.RefusedPods = "pods n/p were refused" },
		"pods were refused on a node that fails": func(in *assess.Input) {
			in.RefusedPods = "pods n/p were refused"
			fail(in, "driver")
		},
		"start-up taints are left": func(in *assess.Input) {
			in.NodePlan.Spec.NodeStartup.Taints = []v1.StartupTaint{
				{Key: "a", Effect: corev1.TaintEffectNoSchedule}, {Key: "b", Effect: corev1.TaintEffectNoSchedule},
			}
			in.Node.Spec.Taints = []corev1.Taint{
				{Key: "a", Effect: corev1.TaintEffectNoSchedule}, {Key: "c", Effect: corev1.TaintEffectNoSchedule},
				{Key: "b", Effect: corev1.TaintEffectNoSchedule},
			}
			outdate(in, "driver")
		},
		"start-up taints of a node that starts": func(in *assess.Input) {
			verdictCase("start-up taints are left")(in)
			unready(in, "driver", 0)
		},
		"the driver moves": func(in *assess.Input) {
			in.NodePlan.Facts.Pool, in.NodePlan.Pool.Name = "old", "new"
		},
		"the driver moves when it is requested": func(in *assess.Input) {
			verdictCase("the driver moves")(in)
			in.Node.Annotations[labels.UpgradeRequested] = labels.True
		},
		"the driver moves, and fails": func(in *assess.Input) { verdictCase("the driver moves")(in); fail(in, "driver") },
		"the driver does not move": func(in *assess.Input) {
			in.NodePlan.Facts.Pool, in.NodePlan.Pool.Name = "old", "old"
		},
		"an upgrade is requested in other words": func(in *assess.Input) {
			in.NodePlan.LabelNotes = []string{"label a has no effect"}
			in.Node.Annotations[labels.UpgradeRequested] = "yes"
		},
		"no upgrade is requested": func(in *assess.Input) { in.Node.Annotations[labels.UpgradeRequested] = labels.False },
		"labels of a node that fails": func(in *assess.Input) {
			in.NodePlan.LabelNotes = []string{"label a has no effect"}
			fail(in, "driver")
		},
		"labels beside another cause": func(in *assess.Input) {
			in.NodePlan.LabelNotes = []string{"label a has no effect", "label b neither"}
			in.RefusedPods = "pods n/p were refused"
		},

		"another configuration fails here": func(in *assess.Input) { in.HeldConfig = "c/a"; fail(in, "driver") },
		"pods fail with another configuration": func(in *assess.Input) {
			in.HeldConfig, in.HeldFails = "c/a", true
		},
		"pods fail with another configuration, and the node starts": func(in *assess.Input) {
			in.HeldConfig, in.HeldFails = "c/a", true
			unready(in, "driver", 0)
		},
		"another configuration is read": func(in *assess.Input) { in.HeldConfig = "c/a"; unready(in, "driver", 0) },
		"a configuration is not used, and the plugin is paused": func(in *assess.Input) {
			in.NodePlan.PluginConfig = operand.ConfigProblem{Message: "no such key", Fatal: true}
			expect(in, "device-plugin", plan.PausedByLabel, v1.ReasonOperandPaused)
		},
		"a configuration is not used, and the driver fails": func(in *assess.Input) {
			in.NodePlan.PluginConfig = operand.ConfigProblem{Message: "no such key", Fatal: true}
			fail(in, "driver")
		},

		"a MIG manager that is gone has paused": func(in *assess.Input) { paused(in, labels.MIGStatePending) },
		"a MIG manager that is gone reboots":    func(in *assess.Input) { paused(in, labels.MIGStateRebooting) },
		"a MIG manager that is gone has ended":  func(in *assess.Input) { paused(in, labels.MIGStateSuccess) },
		"another program has paused": func(in *assess.Input) {
			paused(in, labels.MIGStatePending)
			in.Node.Labels[operand.Name("device-plugin").DeployLabel()] = "paused"
		},
		"a MIG manager is gone, and the driver is refused": func(in *assess.Input) {
			paused(in, labels.MIGStatePending)
			expect(in, "driver", plan.Refused, "Reason")
			delete(in.Pods, "driver")
		},
		"MIG is changed": func(in *assess.Input) {
			paused(in, labels.MIGStatePending)
			in.NodePlan.Partitioner = "mig-manager"
		},
		"MIG is changed without its label": func(in *assess.Input) {
			verdictCase("MIG is changed")(in)
			delete(in.Node.Labels, labels.MIGConfig)
		},
		"MIG is changed beside a pod": func(in *assess.Input) {
			verdictCase("MIG is changed")(in)
			in.Tenants = []string{"n/a"}
		},
		"MIG is changed beside three pods": func(in *assess.Input) {
			verdictCase("MIG is changed")(in)
			in.Tenants = []string{"n/a", "n/b", "n/c"}
		},
		"MIG failed beside four pods": func(in *assess.Input) {
			in.NodePlan.Partitioner = "mig-manager"
			in.Node.Labels[labels.MIGConfig], in.Node.Labels[labels.MIGConfigState] = "all-1g.10gb", labels.MIGStateFailed
			in.Tenants = []string{"n/a", "n/b", "n/c", "n/d"}
		},
		"MIG failed without a pod of its manager": func(in *assess.Input) {
			verdictCase("MIG failed beside four pods")(in)
			delete(in.Pods, "mig-manager")
		},
		"MIG waits for its turn": func(in *assess.Input) {
			in.NodePlan.Partitioner, in.NodePlan.MIGWanted = "mig-manager", "x"
		},
		"MIG is refused": func(in *assess.Input) {
			in.NodePlan.Partitioner, in.NodePlan.MIGRefused = "mig-manager", "unknown"
		},
		"MIG is left": func(in *assess.Input) {
			in.NodePlan.Partitioner = "mig-manager"
			in.Node.Labels[labels.MIGConfig] = labels.MIGAllDisabled
			in.Node.Labels[labels.MIGConfigState] = labels.MIGStateSuccess
			one := in.Node.Status.Capacity["nvidia.com/gpu"]
			for _, name := range []corev1.ResourceName{
				"nvidia.com/mig-2g.20gb", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb",
			} {
				in.Node.Status.Capacity[name], in.Node.Status.Allocatable[name] = one, one
			}
		},

		"another plugin offers GPUs": func(in *assess.Input) {
			delete(in.Pods, "device-plugin")
			in.ForeignSince = begin.Add(-time.Minute)
		},
		"another plugin offers GPUs for long": func(in *assess.Input) {
			delete(in.Pods, "device-plugin")
			in.ForeignSince = begin.Add(-time.Hour)
		},
		"another plugin offers GPUs, and the driver fails": func(in *assess.Input) {
			verdictCase("another plugin offers GPUs for long")(in)
			fail(in, "driver")
		},
		"another plugin offers GPUs for long, during an upgrade": func(in *assess.Input) {
			verdictCase("another plugin offers GPUs for long")(in)
			inUpgrade(in, "drain-required")
		},
		"another plugin offers several resources": func(in *assess.Input) {
			verdictCase("another plugin offers GPUs for long")(in)
			for name, count := range map[corev1.ResourceName]string{
				"cpu": "8", "nvidia.com/mig-1g.10gb": "0", "nvidia.com/mig-2g.20gb": "2", "nvidia.com/mig-3g.40gb": "3",
			} {
				in.Node.Status.Capacity[name], in.Node.Status.Allocatable[name] = resource.MustParse("8"), resource.MustParse(count)
			}
		},
		"a DRA driver offers GPUs": func(in *assess.Input) {
			verdictCase("no plugin")(in)
			in.Neighbours = []neighbour.Neighbour{otherPlugin, {Kind: neighbour.DRADriver, Workload: "DaemonSet n/dra"}}
		},
		"a DRA driver offers GPUs, and pods were refused": func(in *assess.Input) {
			verdictCase("a DRA driver offers GPUs")(in)
			in.RefusedPods = "pods n/p were refused"
		},
		"a DRA driver offers GPUs, and the validator fails": func(in *assess.Input) {
			verdictCase("a DRA driver offers GPUs")(in)
			fail(in, "operator-validator")
		},
		"a DRA driver offered GPUs before a start": func(in *assess.Input) {
			verdictCase("a DRA driver offers GPUs, and pods were refused")(in)
			a := assess.Node(*in)
			in.Neighbours, in.RefusedPods = a.Record(assess.Record{}).Neighbours, ""
		},
		"a DRA driver offers GPUs while the driver is outdated": func(in *assess.Input) {
			verdictCase("a DRA driver offers GPUs")(in)
			outdate(in, "driver")
		},
		"another plugin is left to offer GPUs": func(in *assess.Input) {
			expect(in, "device-plugin", plan.OptedOut, "")
			delete(in.Pods, "device-plugin")
			in.Neighbours = []neighbour.Neighbour{otherPlugin}
		},
		"another plugin is left to offer GPUs, and the driver is outdated": func(in *assess.Input) {
			verdictCase("another plugin is left to offer GPUs")(in)
			outdate(in, "driver")
		},
		"another plugin is left to offer GPUs, and the driver fails": func(in *assess.Input) {
			verdictCase("another plugin is left to offer GPUs")(in)
			fail(in, "driver")
		},
		"GPUs on the bus are not offered": func(in *assess.Input) { in.Node.Annotations[labels.GPUsOnBus] = "9" },
		"GPUs on the bus are not counted": func(in *assess.Input) {
			in.Node.Annotations[labels.GPUsOnBus] = "9"
			in.NodePlan.Spec.NodeDiscovery.Mode = v1.DiscoveryNFD
		},
		"a GPU is lost, and the validator is to be replaced": func(in *assess.Input) {
			lost := validatorPod(65, false, time.Time{})
			lost.OwnerReferences, lost.Annotations = in.Pods["operator-validator"].OwnerReferences, map[string]string{}
			in.Pods["operator-validator"] = lost
		},
		"a GPU is lost, and the validator runs again": func(in *assess.Input) {
			in.Pods["operator-validator"] = validatorPod(65, false, begin)
		},
		"a container of the plugin ends like the validator": func(in *assess.Input) {
			in.Pods["device-plugin"] = validatorPod(65, false, time.Time{})
		},
		"a configuration is not used, and the plugin starts": func(in *assess.Input) {
			in.NodePlan.PluginConfig = operand.ConfigProblem{Message: "no such key", Fatal: true}
			unready(in, "device-plugin", 0)
		},
		"a configuration is not used, during an upgrade": func(in *assess.Input) {
			verdictCase("a configuration is not used, and the plugin starts")(in)
			inUpgrade(in, "drain-required")
		},
		"a pod without the handler is younger than the toolkit": func(in *assess.Input) {
			verdictCase("the runtime has no handler")(in)
			in.Pods["operator-validator"].Status.Conditions[1].LastTransitionTime = metav1.NewTime(begin)
		},
		"a precompiled driver crashes": func(in *assess.Input) {
			fail(in, "driver")
			in.NodePlan.Facts.PoolKernel = "6.8"
		},
		"a precompiled driver starts, after its words": func(in *assess.Input) {
			unready(in, "driver", 0)
			in.NodePlan.Facts.PoolKernel = "6.8"
		},
		"MIG failed without a manager": func(in *assess.Input) {
			verdictCase("MIG failed beside four pods")(in)
			in.NodePlan.Partitioner = ""
		},
		"MIG is changed, and its manager starts": func(in *assess.Input) {
			paused(in, labels.MIGStatePending)
			in.NodePlan.Partitioner = "mig-manager"
			unready(in, "driver", 0)
		},
		"MIG is left by another plugin": func(in *assess.Input) {
			verdictCase("MIG is left")(in)
			verdictCase("another plugin is left to offer GPUs")(in)
		},
		"MIG is applied under another name": func(in *assess.Input) {
			in.NodePlan.Partitioner = "mig-manager"
			in.Node.Labels[labels.MIGConfig], in.Node.Labels[labels.MIGConfigState] = "halves", labels.MIGStateSuccess
		},
		"an upgrade failed, and the driver is outdated": func(in *assess.Input) {
			outdate(in, "driver")
			inUpgrade(in, "upgrade-failed")
		},
		"an upgrade failed, and the driver has long been starting": func(in *assess.Input) {
			verdictCase("the driver has been starting for too long")(in)
			inUpgrade(in, "upgrade-failed")
		},
		"an upgrade failed, and the driver starts": func(in *assess.Input) {
			unready(in, "driver", 0)
			inUpgrade(in, "upgrade-failed")
		},
		"an upgrade failed, and the kubelet is not ready": func(in *assess.Input) {
			in.Node.Status.Conditions[0].Status = corev1.ConditionFalse
			inUpgrade(in, "upgrade-failed")
		},
		"an upgrade failed by an unreadable record": func(in *assess.Input) {
			outdate(in, "driver")
			inUpgrade(in, "upgrade-failed")
			in.Node.Annotations[labels.UpgradeRecord] = "what"
		},
		"an upgrade is done": func(in *assess.Input) {
			outdate(in, "driver")
			inUpgrade(in, "upgrade-done")
		},
		"an earlier driver was validated by a pod without a name": func(in *assess.Input) {
			in.NodePlan.Spec.Driver.Enabled = new(false)
			withoutGPUs(in)
		},
		"the driver is left to the host, and the kubelet is not ready": func(in *assess.Input) {
			expect(in, "driver", plan.HostProvides, "")
			in.Node.Status.Conditions[0].Status = corev1.ConditionFalse
		},
		"a driver without a known kernel": func(in *assess.Input) {
			fail(in, "driver")
			in.Pods["driver"].Status.ContainerStatuses[0].State.Terminated.Message = "could not resolve linux kernel version"
		},
	}
}

// verdictCase returns a case, on which another builds.
func verdictCase(name string) func(*assess.Input) { return verdictCases()[name] }

// The golden file shows the whole assessment of a node by what differs from one on which all is ready. UPDATE_GOLDEN=1
// writes it.
func TestVerdicts(t *testing.T) {
	var found strings.Builder
	for _, name := range slices.Sorted(maps.Keys(verdictCases())) {
		in := stackNode()
		verdictCase(name)(in)
		a := assess.Node(*in)
		found.WriteString("== " + name + "\n" + describe(&a))
	}
	golden.Compare(t, "testdata/verdicts.golden.txt", found.String())
}
