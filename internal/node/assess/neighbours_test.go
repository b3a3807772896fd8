package assess_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/node/assess"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

var (
	otherPlugin    = neighbour.Neighbour{Kind: neighbour.DevicePlugin, Workload: "DaemonSet kube-system/plugin"}
	otherDiscovery = neighbour.Neighbour{Kind: neighbour.FeatureDiscovery, Workload: "DaemonSet gpu/gfd"}
	otherExporter  = neighbour.Neighbour{Kind: neighbour.Exporter, Workload: "DaemonSet monitoring/dcgm-exporter"}
	otherEngine    = neighbour.Neighbour{Kind: neighbour.HostEngine, Workload: "DaemonSet monitoring/dcgm"}
)

// besideOperands is a node that offers 8 GPUs, on which the device plugin and these auxiliary operands are ready.
func besideOperands(auxiliary ...operand.Name) assess.Input {
	eight := map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}
	in := assess.Input{
		NodePlan: plan.NodePlan{
			Spec: effective.Of(v1.ClusterPolicySpec{}), NeedsAllocatable: true,
			Essential: []plan.OperandOnNode{
				{Operand: "device-plugin", Stage: v1.StageDevicePlugin},
				{Operand: "operator-validator", Stage: v1.StageValidated},
			},
		},
		Node: gpuNode(eight, eight), Now: begin,
		Pods: assess.Pods{"device-plugin": readyPod(), "operator-validator": readyPod()},
	}
	for _, name := range auxiliary {
		in.NodePlan.Auxiliary = append(in.NodePlan.Auxiliary, plan.OperandOnNode{Operand: name})
		in.Pods[name] = readyPod()
	}
	return in
}

func readyPod() *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
	}}}
}

// afterAStart assesses the node before its neighbours are known, when it has the record of this assessment.
func afterAStart(in assess.Input, reported assess.Assessment) assess.Assessment {
	node := &corev1.Node{}
	if record := reported.Record(assess.Record{}).Annotation(); record != nil {
		node.Annotations = map[string]string{labels.ReportRecord: *record}
	}
	in.Neighbours = assess.RecordOf(node).Neighbours
	return assess.Node(in)
}

// Until the neighbours are known, those of the record count, whatever the node is like meanwhile.
func TestUnknownNeighbours(t *testing.T) {
	in := besideOperands()
	in.Neighbours = []neighbour.Neighbour{otherExporter, otherPlugin}
	reported := assess.Node(in)
	for name, test := range map[string]struct {
		change          func(*assess.Input)
		reason, message string
	}{
		"the same": {func(*assess.Input) {}, "DuplicateDevicePlugin", "DaemonSet kube-system/plugin is another"},
		"the node has failed since": {func(in *assess.Input) {
			in.Node = gpuNode(map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}, nil)
		}, "NotAllocatable", "; another device plugin there: DaemonSet kube-system/plugin"},
		"another reason since": {func(in *assess.Input) {
			in.RefusedPods = "its kubelet refused pods"
		}, "GPUPodsRefused", "its kubelet refused pods"},
	} {
		t.Run(name, func(t *testing.T) {
			g, in := NewWithT(t), in
			test.change(&in)
			again := afterAStart(in, reported)
			g.Expect(again.Reason).To(Equal(test.reason))
			g.Expect(again.Message).To(ContainSubstring(test.message))
			g.Expect(assess.Node(in)).To(HaveField("Message", again.Message), "as when the neighbours are known")
		})
	}
}

// Also of a node that fails with a detail, which may be another one since: a restart of the operator changes nothing.
func TestUnknownNeighboursOfAFailedNode(t *testing.T) {
	const note = "another device plugin there: DaemonSet kube-system/plugin"
	for name, test := range map[string]struct{ before, now string }{
		"without a detail": {}, "the same detail": {"no GPU: x", "no GPU: x"}, "another detail": {"no GPU: x", "no: y"},
		"the first detail": {"", "no GPU"}, "no detail any more": {"no GPU", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := besideOperands()
			in.Node = gpuNode(map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}, nil)
			failWith := func(detail string) {
				pod := readyPod()
				pod.Status.Conditions[1].Status = corev1.ConditionFalse
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
					Name: "main",
					State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
						ExitCode: 1, Message: detail,
					}},
				}}
				in.Pods["device-plugin"] = pod
			}
			failWith(test.before)
			in.Neighbours = []neighbour.Neighbour{otherPlugin}
			reported := assess.Node(in)
			g.Expect(reported.Message).To(HaveSuffix("; " + note))
			g.Expect(reported.Detail).To(Equal(test.before))
			failWith(test.now)
			after := afterAStart(in, reported)
			g.Expect(after.Cause("a")).To(Equal(reported.Cause("a")))
			g.Expect(after.Detail).To(Equal(test.now))
		})
	}
}

// What others run beside an operand is reported with both remedies, and the node stays ready. Beside none it is not.
func TestNeighboursBesideOperands(t *testing.T) {
	const plugin = "DaemonSet kube-system/plugin is another device plugin: delete it, or set " +
		"spec.devicePlugin.enabled: false"
	const exporter = "DaemonSet monitoring/dcgm-exporter is another DCGM exporter: delete it, or set " +
		"spec.dcgmExporter.enabled: false"
	for name, test := range map[string]struct {
		neighbours      []neighbour.Neighbour
		auxiliary       []operand.Name
		change          func(*assess.Input)
		reason, message string
	}{
		"none": {auxiliary: []operand.Name{"dcgm-exporter"}},
		"a device plugin": {
			neighbours: []neighbour.Neighbour{otherPlugin}, reason: "DuplicateDevicePlugin", message: plugin,
		},
		"an exporter": {
			neighbours: []neighbour.Neighbour{otherExporter}, auxiliary: []operand.Name{"dcgm-exporter"},
			reason: "DuplicateOperand", message: exporter,
		},
		"an exporter, and the operator's is off": {neighbours: []neighbour.Neighbour{otherExporter}},
		"an exporter, and the operator's is paused": {
			neighbours: []neighbour.Neighbour{otherExporter}, auxiliary: []operand.Name{"dcgm-exporter"},
			change: func(in *assess.Input) { in.NodePlan.Auxiliary[0].Expectation = plan.OptedOut },
		},
		"GPU Feature Discovery": {
			neighbours: []neighbour.Neighbour{otherDiscovery}, auxiliary: []operand.Name{"gpu-feature-discovery"},
			reason: "DuplicateOperand",
			message: "DaemonSet gpu/gfd is another GPU Feature Discovery: delete it, or set " +
				"spec.gfd.enabled: false",
		},
		"a host engine beside the operator's": {
			neighbours: []neighbour.Neighbour{otherEngine}, auxiliary: []operand.Name{"dcgm", "dcgm-exporter"},
			reason:  "DuplicateOperand",
			message: "DaemonSet monitoring/dcgm is another DCGM host engine: delete it, or set spec.dcgm.enabled: false",
		},
		"a host engine beside that of the exporter": {
			neighbours: []neighbour.Neighbour{otherEngine}, auxiliary: []operand.Name{"dcgm-exporter"},
			reason: "DuplicateOperand",
			message: "DaemonSet monitoring/dcgm is another DCGM host engine: delete it, or set " +
				"spec.dcgmExporter.enabled: false",
		},
		"both: the device plugin does more harm": {
			neighbours: []neighbour.Neighbour{otherPlugin, otherExporter}, auxiliary: []operand.Name{"dcgm-exporter"},
			reason: "DuplicateDevicePlugin", message: plugin + "; " + exporter,
		},
		"many": {
			neighbours: []neighbour.Neighbour{
				otherExporter, {Kind: neighbour.Exporter, Workload: "b"}, {Kind: neighbour.Exporter, Workload: "c"},
				{Kind: neighbour.Exporter, Workload: "d"}, {Kind: neighbour.Exporter, Workload: "e"},
			},
			auxiliary: []operand.Name{"dcgm-exporter"}, reason: "DuplicateOperand",
			message: exporter + "; b is another DCGM exporter: delete it, or set spec.dcgmExporter.enabled: false; " +
				"c is another DCGM exporter: delete it, or set spec.dcgmExporter.enabled: false; and more",
		},
		"something else is wrong": {
			neighbours: []neighbour.Neighbour{otherPlugin},
			change:     func(in *assess.Input) { in.RefusedPods = "its kubelet refused pods" },
			reason:     "GPUPodsRefused", message: "its kubelet refused pods",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := besideOperands(test.auxiliary...)
			in.Neighbours = test.neighbours
			if test.change != nil {
				test.change(&in)
			}
			a := assess.Node(in)
			g.Expect(a.Ready()).To(BeTrue())
			g.Expect(a.Usable).To(BeTrue())
			g.Expect(a.Reason).To(Equal(test.reason))
			g.Expect(a.Message).To(Equal(test.message))
			condition := a.Condition("a")
			g.Expect(condition.Status).To(Equal(corev1.ConditionTrue))
			g.Expect(afterAStart(in, a)).To(And(HaveField("Reason", a.Reason), HaveField("Message", a.Message)))
		})
	}
}

// Where a device plugin and a DRA driver offer the same GPUs, the scheduler gives one GPU away twice. Which device
// plugin it is makes no difference; GPUs that only one of the two offers are not given away twice.
func TestGPUsThatAreOfferedTwice(t *testing.T) {
	const twice = "DaemonSet dra/gpus offers the GPUs by resource claims (DRA), too, so that a claim and a pod may get " +
		"the same GPU: turn off the GPUs of one: the DRA driver's, or spec.devicePlugin.enabled: false"
	driver := neighbour.Neighbour{Kind: neighbour.DRADriver, Workload: "DaemonSet dra/gpus"}
	turnOff := func(in *assess.Input) {
		in.NodePlan.PluginOff, in.NodePlan.Essential = "spec.devicePlugin.enabled is false", in.NodePlan.Essential[1:]
		delete(in.Pods, "device-plugin")
	}
	for name, test := range map[string]struct {
		neighbours             []neighbour.Neighbour
		change                 func(*assess.Input)
		reason, message, offer string
	}{
		"by the operator's plugin": {
			neighbours: []neighbour.Neighbour{driver}, reason: "GPUsOfferedTwice", message: twice,
		},
		"beside two plugins": {
			neighbours: []neighbour.Neighbour{otherPlugin, driver}, reason: "GPUsOfferedTwice",
			message: twice + "; DaemonSet kube-system/plugin is another device plugin: delete it, or set " +
				"spec.devicePlugin.enabled: false",
		},
		"by another plugin": {
			neighbours: []neighbour.Neighbour{otherPlugin, driver}, change: turnOff, reason: "GPUsOfferedTwice",
			message: twice, offer: "nvidia.com/gpu: 8, by another device plugin: not validated",
		},
		"by another plugin that is not known": {
			neighbours: []neighbour.Neighbour{driver}, change: turnOff, reason: "GPUsOfferedTwice", message: twice,
			offer: "nvidia.com/gpu: 8, by another device plugin: not validated",
		},
		"by the DRA driver alone": {
			neighbours: []neighbour.Neighbour{driver}, change: func(in *assess.Input) {
				turnOff(in)
				in.Node = gpuNode(nil, nil)
			},
			offer:   "GPUs by resource claims (DRA): not validated",
			message: "a DRA driver offers them by resource claims, which the operator has not validated: DaemonSet dra/gpus",
		},
		"by a plugin alone": {},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := besideOperands()
			in.Neighbours = test.neighbours
			if test.change != nil {
				test.change(&in)
			}
			a := assess.Node(in)
			g.Expect(a.Ready()).To(BeTrue(), "the GPUs can be used")
			g.Expect(a.Reason).To(Equal(test.reason))
			g.Expect(a.Message).To(Equal(test.message))
			g.Expect(a.Offer).To(Equal(test.offer))
			g.Expect(a.NamesNeighbours()).To(Equal(test.message != ""))
			g.Expect(assess.IsDuplicate(a.Reason)).To(Equal(test.reason != ""), "it is worth an Event")
			condition := a.Condition("a")
			g.Expect(condition.Status).To(Equal(corev1.ConditionTrue))
			g.Expect(afterAStart(in, a)).To(And(HaveField("Reason", a.Reason), HaveField("Message", a.Message)))
		})
	}
}

// A node that offers no GPU names the device plugin that may be the cause; a node that waits for its driver does not.
func TestNeighboursOfANodeThatIsNotReady(t *testing.T) {
	g := NewWithT(t)
	in := besideOperands()
	in.Neighbours = []neighbour.Neighbour{otherExporter, otherPlugin}
	in.Node = gpuNode(map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}, nil)
	a := assess.Node(in)
	g.Expect(a.Reason).To(Equal("NotAllocatable"))
	g.Expect(a.Message).To(HaveSuffix("; another device plugin there: DaemonSet kube-system/plugin"))
	g.Expect(afterAStart(in, a)).To(And(HaveField("Reason", a.Reason), HaveField("Message", a.Message)))

	in.NodePlan.Essential = append([]plan.OperandOnNode{{Operand: "driver", Stage: v1.StageDriver}},
		in.NodePlan.Essential...)
	a = assess.Node(in)
	g.Expect(a.Stage).To(Equal(v1.StageDriver))
	g.Expect(a.Message).NotTo(ContainSubstring("plugin"))
}

// Where the operator's device plugin is off, what another one offers is not passed off as validated.
func TestGPUsOfAnotherDevicePlugin(t *testing.T) {
	const offer = "nvidia.com/gpu: 8, by another device plugin: not validated"
	const message = "another device plugin offers them, which the operator has not validated"
	optedOut := func(in *assess.Input) {
		in.NodePlan.Essential[0].Expectation = plan.OptedOut
		delete(in.Pods, "device-plugin")
	}
	disabled := func(in *assess.Input) {
		in.NodePlan.PluginOff, in.NodePlan.Essential = "spec.devicePlugin.enabled is false", in.NodePlan.Essential[1:]
		delete(in.Pods, "device-plugin")
	}
	for name, test := range map[string]struct {
		change         func(*assess.Input)
		offer, message string
	}{
		"the operator's": {change: func(*assess.Input) {}},
		"off by spec":    {change: disabled, offer: offer, message: message},
		"off by label":   {change: optedOut, offer: offer, message: message},
		"off, and it is known which": {change: func(in *assess.Input) {
			disabled(in)
			in.Neighbours = []neighbour.Neighbour{otherPlugin}
		}, offer: offer, message: message + ": DaemonSet kube-system/plugin"},
		"off, and the operator's is about to end": {change: func(in *assess.Input) {
			disabled(in)
			in.Pods["device-plugin"] = readyPod()
		}},
		"off, and shared": {change: func(in *assess.Input) {
			disabled(in)
			in.Node.Labels["nvidia.com/gpu.replicas"], in.Node.Labels["nvidia.com/gpu.sharing-strategy"] = "4", "time-slicing"
		}, offer: "nvidia.com/gpu: 2 x 4 shared = 8, by another device plugin: not validated", message: message},
		"paused": {change: func(in *assess.Input) {
			in.NodePlan.Essential[0].Expectation = plan.PausedByLabel
			delete(in.Pods, "device-plugin")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := besideOperands()
			test.change(&in)
			a := assess.Node(in)
			g.Expect(a.Offer).To(Equal(test.offer))
			if test.message == "" {
				g.Expect(a.Message).NotTo(ContainSubstring("another"))
				return
			}
			g.Expect(a.Reason).To(BeEmpty(), "the spec requests it")
			g.Expect(a.Message).To(Equal(test.message))
			g.Expect(a.Ready()).To(BeTrue())
			g.Expect(a.Condition("a")).To(HaveField("Message", "a: GPUs can be used; "+test.message))
			g.Expect(afterAStart(in, a)).To(HaveField("Message", test.message))
		})
	}
}

// Where nothing offers GPUs, none can be used: it makes no difference what keeps the operator's device plugin off, nor
// that the kubelet still counts what an earlier one has advertised.
func TestGPUsThatNothingOffers(t *testing.T) {
	const field, selector = "spec.devicePlugin.enabled is false", "spec.devicePlugin.nodeSelector requires label tier=gpu"
	const label = `label nvidia.com/gpu.deploy.device-plugin is "false"`
	eight := map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}
	optedOut := func(reason, message string) func(*plan.NodePlan) {
		return func(node *plan.NodePlan) {
			node.Essential[0].Expectation = plan.OptedOut
			node.Essential[0].Reason, node.Essential[0].Message = reason, message
		}
	}
	for name, test := range map[string]struct {
		turnOff func(*plan.NodePlan)
		why     string
	}{
		"off by spec": {func(node *plan.NodePlan) {
			node.PluginOff, node.Essential = field, node.Essential[1:]
		}, field},
		"off by label":        {optedOut("OperandPaused", label), label},
		"off by nodeSelector": {optedOut("NotSelected", selector), selector},
	} {
		for counted, node := range map[string]*corev1.Node{
			"": gpuNode(nil, nil), ", after a plugin": gpuNode(eight, map[corev1.ResourceName]int64{"nvidia.com/gpu": 0}),
		} {
			t.Run(name+counted, func(t *testing.T) {
				g := NewWithT(t)
				in := besideOperands()
				delete(in.Pods, "device-plugin")
				in.Node = node
				test.turnOff(&in.NodePlan)
				a := assess.Node(in)
				g.Expect(a.Condition("a")).To(And(
					HaveField("Status", corev1.ConditionFalse), HaveField("Reason", "DevicePluginOff"),
					HaveField("Message", "a: stage Allocatable: nothing offers the GPUs of the node: "+test.why)))
				g.Expect(a.GPUs.Usable).To(BeZero())
				g.Expect(a.Usable).To(BeFalse())
				g.Expect(a.InService()).To(BeTrue(), "nothing else is wrong")
				g.Expect(a.NamesNeighbours()).To(BeTrue())

				delete(in.Pods, "operator-validator")
				a = assess.Node(in)
				g.Expect(a.Reason).To(Equal("DevicePluginOff"))
				g.Expect(a.InService()).To(BeFalse(), "the validator is missing")
			})
		}
	}
}

// A device plugin of the operator that offers no GPUs keeps the node out of service, and is no reason to look for
// neighbours again and again.
func TestGPUsThatTheDevicePluginDoesNotOffer(t *testing.T) {
	g := NewWithT(t)
	in := besideOperands()
	in.Node = gpuNode(map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}, nil)
	a := assess.Node(in)
	g.Expect(a.Reason).To(Equal("NotAllocatable"))
	g.Expect(a.InService()).To(BeFalse())
	g.Expect(a.NamesNeighbours()).To(BeFalse())
}

// Where the operator's device plugin is off and a DRA driver offers the GPUs, all of them count, and the condition says
// by what.
func TestGPUsOfADRADriver(t *testing.T) {
	const message = "a DRA driver offers them by resource claims, which the operator has not validated: " +
		"DaemonSet dra/plugin"
	draDriver := neighbour.Neighbour{Kind: neighbour.DRADriver, Workload: "DaemonSet dra/plugin"}
	eight := map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}
	byLabel := func(in *assess.Input) { in.NodePlan.Essential[0].Expectation = plan.OptedOut }
	bySpec := func(in *assess.Input) {
		in.NodePlan.PluginOff, in.NodePlan.Essential = "spec.devicePlugin.enabled is false", in.NodePlan.Essential[1:]
	}
	for name, test := range map[string]struct {
		off             func(*assess.Input)
		driver          bool
		ready           bool
		usable          int
		offer, messages string
	}{
		"off by label": {off: byLabel, driver: true, ready: true, usable: 8, messages: message,
			offer: "GPUs by resource claims (DRA): not validated"},
		"off by spec": {off: bySpec, driver: true, ready: true, usable: 8, messages: message,
			offer: "GPUs by resource claims (DRA): not validated"},
		"off by label, without a DRA driver": {off: byLabel},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := besideOperands()
			test.off(&in)
			delete(in.Pods, "device-plugin")
			// A kubelet keeps the capacity of a plugin that has ended.
			in.Node = gpuNode(eight, nil)
			in.Node.Labels["nvidia.com/gpu.count"] = "8"
			if test.driver {
				in.Neighbours = []neighbour.Neighbour{draDriver}
			}
			a := assess.Node(in)
			g.Expect(a.Ready()).To(Equal(test.ready))
			g.Expect(a.GPUs).To(And(HaveField("Total", 8), HaveField("Usable", test.usable)))
			g.Expect(a.Offer).To(Equal(test.offer))
			if !test.ready {
				g.Expect(a.Reason).To(Equal("NotAllocatable"))
				return
			}
			g.Expect(a.Reason).To(BeEmpty())
			g.Expect(a.Message).To(Equal(test.messages))
			again := afterAStart(in, a)
			g.Expect(again).To(And(HaveField("Message", a.Message), HaveField("Offer", a.Offer)))
			g.Expect(again.GPUs).To(Equal(a.GPUs))
			g.Expect(again.Ready()).To(BeTrue())
		})
	}
}

// Until the neighbours are known, a node whose GPUs only resource claims get stays ready by the DRA driver in its
// record, whatever its condition says else: another reason may take the place of the name of the driver.
func TestUnknownDRADriver(t *testing.T) {
	for name, change := range map[string]func(*assess.Input){
		"named": func(*assess.Input) {},
		"of a pending upgrade": func(in *assess.Input) {
			in.NodePlan.Facts.Pool, in.NodePlan.Pool.Name = "one", "two"
		},
		"with refused pods": func(in *assess.Input) { in.RefusedPods = "its kubelet refused pods" },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			in := besideOperands()
			in.NodePlan.PluginOff, in.NodePlan.Essential = "spec.devicePlugin.enabled is false", in.NodePlan.Essential[1:]
			delete(in.Pods, "device-plugin")
			in.Node = gpuNode(map[corev1.ResourceName]int64{"nvidia.com/gpu": 8}, nil)
			in.Node.Labels["nvidia.com/gpu.count"] = "8"
			change(&in)
			in.Neighbours = []neighbour.Neighbour{otherExporter, {Kind: neighbour.DRADriver, Workload: "DaemonSet dra/gpus"}}
			reported := assess.Node(in)
			g.Expect(reported.Ready()).To(BeTrue())
			again := afterAStart(in, reported)
			g.Expect(again.Condition("a")).To(Equal(reported.Condition("a")))
			g.Expect(again.Offer).To(Equal("GPUs by resource claims (DRA): not validated"))
			g.Expect(again.GPUs).To(And(HaveField("Total", 8), HaveField("Usable", 8)))
		})
	}
}

// A label without effect shows on a ready node, after all else.
func TestLabelNotes(t *testing.T) {
	g := NewWithT(t)
	in := besideOperands()
	in.NodePlan.LabelNotes = []string{"label a is \"b\""}
	a := assess.Node(in)
	g.Expect(a.Ready()).To(BeTrue())
	g.Expect(a.Condition("a")).To(And(HaveField("Reason", "GPUReady"),
		HaveField("Message", "a: GPUs can be used; label a is \"b\"")))
	g.Expect(afterAStart(in, a)).To(HaveField("Message", a.Message))

	in.Neighbours = []neighbour.Neighbour{{Kind: neighbour.DevicePlugin, Workload: "DaemonSet kube-system/plugin"}}
	a = assess.Node(in)
	g.Expect(a.Message).To(HavePrefix("DaemonSet kube-system/plugin is another device plugin"))
	g.Expect(afterAStart(in, a)).To(And(HaveField("Reason", a.Reason), HaveField("Message", a.Message)))
	g.Expect(a.Message).To(And(HavePrefix("DaemonSet kube-system/plugin is another device plugin"),
		HaveSuffix("; label a is \"b\"")))
	in.Neighbours = nil
	in.Node.Annotations = map[string]string{"nvidia.com/gpu-driver-upgrade-requested": "yes"}
	g.Expect(assess.Node(in).Message).To(Equal(`label a is "b"; annotation nvidia.com/gpu-driver-upgrade-requested is ` +
		`"yes", which requests no upgrade: only "true" does`))
	in.Node.Annotations["nvidia.com/gpu-driver-upgrade-requested"] = "true"
	g.Expect(assess.Node(in).Message).To(Equal(`label a is "b"`))
}
