package plan_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/test/scenarios"
)

// catalogue returns the operands that the tables here list.
func catalogue(t *testing.T) operand.Catalogue {
	t.Helper()
	all, err := scenarios.Tabled()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// decide returns the decisions for a spec without references.
func decide(t *testing.T, spec v1.ClusterPolicySpec) *plan.Decisions {
	t.Helper()
	return plan.Decide(catalogue(t), operand.Input{Spec: effective.Of(spec)})
}

// ubuntu returns the facts of a GPU node, as discovery labels it.
func ubuntu(name string) nodeinfo.Facts { return scenarios.Ubuntu(name) }

func changed(facts nodeinfo.Facts, change func(*nodeinfo.Facts)) nodeinfo.Facts {
	change(&facts)
	return facts
}

// stepSummary is a step without its instances.
type stepSummary struct {
	Action          plan.Action
	State           v1.OperandState
	Reason, Message string
	Instances       []string
}

func compute(t *testing.T, spec v1.ClusterPolicySpec, nodes ...nodeinfo.Facts) map[operand.Name]stepSummary {
	t.Helper()
	return computeFor(t, operand.Input{Spec: effective.Of(spec), Namespace: "gpu-operator"}, nodes)
}

func computeFor(t *testing.T, in operand.Input, nodes []nodeinfo.Facts) map[operand.Name]stepSummary {
	t.Helper()
	got := map[operand.Name]stepSummary{}
	for _, step := range plan.Compute(plan.Decide(catalogue(t), in), nil, nodes).Steps {
		w := stepSummary{Action: step.Action, State: step.State, Reason: step.Reason, Message: step.Message}
		for _, instance := range step.Instances {
			w.Instances = append(w.Instances, instance.Pool)
		}
		got[step.Operand.Name] = w
	}
	return got
}

const unfenced = "node discovery is disabled because ValidatingAdmissionPolicyBinding gpu-operator-node-agents is " +
	"missing: " +
	"apply config/admission, or use Node Feature Discovery"

const nriWithoutToolkit = "spec.cdi.nriPluginEnabled needs the container toolkit: " +
	"set spec.toolkit.enabled to true, or remove spec.cdi.nriPluginEnabled"

func TestCompute(t *testing.T) {
	apply := stepSummary{Action: plan.Apply, Instances: []string{""}}
	notNeeded := stepSummary{
		Action:  plan.Remove,
		State:   v1.OperandNotNeeded,
		Reason:  "NotNeeded",
		Message: "no node needs it",
	}
	mpsUnset := stepSummary{
		Action: plan.Remove, State: v1.OperandDisabled, Reason: v1.ReasonDisabledBySpec,
		Message: "neither spec.sharing.mps nor spec.devicePlugin.config.name is set: no configuration shares GPUs by MPS",
	}
	base := map[operand.Name]stepSummary{
		"gpu-feature-discovery": apply, "mps-control-daemon": mpsUnset,
		"driver":          {Action: plan.Apply, Instances: []string{"ubuntu24.04-amd64"}},
		"node-discovery":  apply,
		"runtime-classes": apply, "container-toolkit": apply, "device-plugin": apply, "operator-validator": apply,
		"dcgm-exporter": apply, "operator-metrics": apply,
		"dcgm": {
			Action: plan.Remove, State: v1.OperandDisabled, Reason: v1.ReasonDisabledBySpec,
			Message: "spec.dcgm.enabled is not true: the DCGM exporter runs its own engine",
		},
		"node-status-exporter": {
			Action: plan.Remove, State: v1.OperandDisabled, Reason: v1.ReasonDisabledBySpec,
			Message: "spec.nodeStatusExporter.enabled is not true",
		},
		"mig-manager": notNeeded,
	}
	with := func(change map[operand.Name]stepSummary) map[operand.Name]stepSummary {
		want := map[operand.Name]stepSummary{}
		for name, w := range base {
			want[name] = w
		}
		for name, w := range change {
			want[name] = w
		}
		return want
	}
	noNodes := map[operand.Name]stepSummary{
		"gpu-feature-discovery": notNeeded,
		"dcgm-exporter":         notNeeded,
		"driver":                notNeeded,
		"container-toolkit":     notNeeded,
		"device-plugin":         notNeeded,
		"operator-validator":    notNeeded,
	}
	contradiction := v1.ImageSpec{Image: "example.com/x:1", Version: "2"}
	const contradicted = `: image "example.com/x:1" is a full reference: remove repository and version`
	nothing := map[operand.Reference]operand.Content{}
	tests := map[string]struct {
		spec  v1.ClusterPolicySpec
		nodes []nodeinfo.Facts
		// contents are nil if references have not been read.
		contents map[operand.Reference]operand.Content
		want     map[operand.Name]stepSummary
	}{
		"a GPU node gets everything": {
			nodes: []nodeinfo.Facts{ubuntu("a")}, want: base,
		},
		"nodes of two systems get two drivers": {
			nodes: []nodeinfo.Facts{
				ubuntu("a"),
				changed(ubuntu("b"), func(f *nodeinfo.Facts) { f.OSID, f.OSVersion = "rhel", "9.6" }),
			},
			want: with(
				map[operand.Name]stepSummary{
					"driver": {Action: plan.Apply, Instances: []string{"rhel9-amd64", "ubuntu24.04-amd64"}},
				},
			),
		},
		"a MIG-capable node gets the MIG manager": {
			nodes: []nodeinfo.Facts{ubuntu("a"), changed(ubuntu("b"), func(f *nodeinfo.Facts) { f.MIGCapable = "true" })},
			want:  with(map[operand.Name]stepSummary{"mig-manager": apply}),
		},
		"without nodes only operands without pods on GPU nodes are applied": {
			want: with(noNodes),
		},
		"the same with nodes without a GPU": {
			nodes: []nodeinfo.Facts{changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.HasGPU = false })},
			want:  with(noNodes),
		},
		"the same with excluded nodes": {
			nodes: []nodeinfo.Facts{changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.ExcludedByLabel = true })},
			want:  with(noNodes),
		},
		"a node without its discovery labels still needs everything": {
			nodes: []nodeinfo.Facts{changed(ubuntu("a"), func(f *nodeinfo.Facts) {
				f.HasGPU, f.WasGPU, f.OSID, f.OSVersion, f.Pool = false, true, "", "", "ubuntu24.04-amd64"
			})},
			want: base,
		},
		"a paused node will need it again, and the DaemonSet stays": {
			nodes: []nodeinfo.Facts{
				changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy["driver"] = "paused-for-driver-upgrade" }),
			},
			want: base,
		},
		"unknown facts affect only the driver": {
			nodes: []nodeinfo.Facts{changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.OSID = "" })},
			want:  with(map[operand.Name]stepSummary{"driver": notNeeded}),
		},
		"an unsupported runtime affects only the toolkit": {
			nodes: []nodeinfo.Facts{changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Runtime = "isulad" })},
			want:  with(map[operand.Name]stepSummary{"container-toolkit": notNeeded}),
		},
		"a node with an unsupported runtime does not affect the others": {
			nodes: []nodeinfo.Facts{ubuntu("a"), changed(ubuntu("b"), func(f *nodeinfo.Facts) { f.Runtime = "isulad" })},
			want:  base,
		},
		"a disabled operand is removed, and the message names the field": {
			spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(false)}}, nodes: []nodeinfo.Facts{ubuntu("a")},
			want: with(map[operand.Name]stepSummary{"driver": {
				Action:  plan.Remove,
				State:   v1.OperandDisabled,
				Reason:  v1.ReasonDisabledBySpec,
				Message: "spec.driver.enabled is false",
			}}),
		},
		"with mode nfd the built-in discovery is removed": {
			spec:  v1.ClusterPolicySpec{NodeDiscovery: &v1.NodeDiscoverySpec{Mode: v1.DiscoveryNFD}},
			nodes: []nodeinfo.Facts{ubuntu("a")},
			want: with(map[operand.Name]stepSummary{"node-discovery": {
				Action: plan.Remove, State: v1.OperandDisabled, Reason: v1.ReasonDisabledBySpec,
				Message: "spec.nodeDiscovery.mode is nfd: Node Feature Discovery labels the nodes",
			}}),
		},
		"without its admission policy the built-in discovery is removed, and no operand waits for it": {
			nodes: []nodeinfo.Facts{ubuntu("a")}, contents: nothing,
			want: with(map[operand.Name]stepSummary{"node-discovery": {
				Action: plan.Remove, State: v1.OperandDisabled, Reason: v1.ReasonAdmissionPolicyMissing, Message: unfenced,
			}}),
		},
		"without its admission policy mode builtin is refused, and running pods stay": {
			spec:  v1.ClusterPolicySpec{NodeDiscovery: &v1.NodeDiscoverySpec{Mode: v1.DiscoveryBuiltin}},
			nodes: []nodeinfo.Facts{ubuntu("a")}, contents: nothing,
			want: with(map[operand.Name]stepSummary{"node-discovery": {
				Action: plan.Hold, State: v1.OperandInvalid, Reason: v1.ReasonAdmissionPolicyMissing, Message: unfenced,
			}}),
		},
		"with its admission policy the built-in discovery runs": {
			spec:  v1.ClusterPolicySpec{NodeDiscovery: &v1.NodeDiscoverySpec{Mode: v1.DiscoveryBuiltin}},
			nodes: []nodeinfo.Facts{ubuntu("a")}, contents: map[operand.Reference]operand.Content{
				{Kind: operand.ValidatingAdmissionPolicyBinding, Name: labels.AgentPolicyBinding}: {},
			},
			want: base,
		},
		"with the NRI plugin no operand needs RuntimeClasses": {
			spec:  v1.ClusterPolicySpec{CDI: &v1.CDISpec{NRIPluginEnabled: new(true)}},
			nodes: []nodeinfo.Facts{changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.RuntimeVersion = "2.1.4" })},
			want: with(map[operand.Name]stepSummary{"runtime-classes": {
				Action: plan.Remove, State: v1.OperandDisabled, Reason: v1.ReasonDisabledBySpec,
				Message: "spec.cdi.nriPluginEnabled is true: pods get GPUs without a RuntimeClass",
			}}),
		},
		"the NRI plugin without the toolkit holds the operands that need GPUs": {
			spec: v1.ClusterPolicySpec{
				CDI: &v1.CDISpec{NRIPluginEnabled: new(true)}, Toolkit: &v1.ToolkitSpec{Enabled: new(false)},
				GFD: &v1.GFDSpec{Enabled: new(false)},
			},
			nodes: []nodeinfo.Facts{ubuntu("a")},
			want: with(map[operand.Name]stepSummary{
				"runtime-classes": {
					Action:  plan.Hold,
					State:   v1.OperandInvalid,
					Reason:  v1.ReasonInvalidSpec,
					Message: nriWithoutToolkit,
				},
				"container-toolkit": {
					Action:  plan.Remove,
					State:   v1.OperandDisabled,
					Reason:  v1.ReasonDisabledBySpec,
					Message: "spec.toolkit.enabled is false",
				},
				"gpu-feature-discovery": {
					Action:  plan.Remove,
					State:   v1.OperandDisabled,
					Reason:  v1.ReasonDisabledBySpec,
					Message: "spec.gfd.enabled is false",
				},
				"device-plugin": {
					Action:  plan.Hold,
					State:   v1.OperandWaiting,
					Reason:  v1.ReasonWaitingForOperand,
					Message: "needs runtime-classes, which is not installed: " + nriWithoutToolkit,
				},
				"operator-validator": {
					Action:  plan.Hold,
					State:   v1.OperandWaiting,
					Reason:  v1.ReasonWaitingForOperand,
					Message: "needs runtime-classes, which is not installed: " + nriWithoutToolkit,
				},
				"dcgm-exporter": {
					Action:  plan.Hold,
					State:   v1.OperandWaiting,
					Reason:  v1.ReasonWaitingForOperand,
					Message: "needs runtime-classes, which is not installed: " + nriWithoutToolkit,
				},
			}),
		},
		"operands with an invalid image are held, and the others are applied": {
			spec: v1.ClusterPolicySpec{
				Driver: &v1.DriverSpec{ImageSpec: contradiction}, Toolkit: &v1.ToolkitSpec{ImageSpec: contradiction},
				DevicePlugin: &v1.DevicePluginSpec{ImageSpec: contradiction},
				Validator:    &v1.ValidatorSpec{ImageSpec: contradiction},
				GFD:          &v1.GFDSpec{ImageSpec: contradiction},
			},
			nodes: []nodeinfo.Facts{ubuntu("a")},
			want: with(map[operand.Name]stepSummary{
				"runtime-classes":    apply,
				"mps-control-daemon": mpsUnset,
				"gpu-feature-discovery": {
					Action: plan.Hold, State: v1.OperandInvalid, Reason: v1.ReasonInvalidSpec, Message: "spec.gfd" + contradicted,
				},
				"mig-manager": notNeeded,
				"node-discovery": {
					Action:  plan.Hold,
					State:   v1.OperandInvalid,
					Reason:  v1.ReasonInvalidSpec,
					Message: "spec.validator" + contradicted,
				},
				"driver": {
					Action:  plan.Hold,
					State:   v1.OperandInvalid,
					Reason:  v1.ReasonInvalidSpec,
					Message: "spec.driver" + contradicted,
				},
				"container-toolkit": {
					Action:  plan.Hold,
					State:   v1.OperandInvalid,
					Reason:  v1.ReasonInvalidSpec,
					Message: "spec.toolkit" + contradicted,
				},
				"device-plugin": {
					Action:  plan.Hold,
					State:   v1.OperandInvalid,
					Reason:  v1.ReasonInvalidSpec,
					Message: "spec.devicePlugin" + contradicted,
				},
				"operator-validator": {
					Action:  plan.Hold,
					State:   v1.OperandInvalid,
					Reason:  v1.ReasonInvalidSpec,
					Message: "spec.validator" + contradicted,
				},
			}),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := operand.Input{Spec: effective.Of(test.spec), Namespace: "gpu-operator", Contents: test.contents}
			if diff := cmp.Diff(test.want, computeFor(t, in, test.nodes)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestStepsAreInGraphOrder(t *testing.T) {
	all := catalogue(t)
	var got []operand.Name
	for _, step := range plan.Compute(decide(t, v1.ClusterPolicySpec{}), nil, []nodeinfo.Facts{ubuntu("a")}).Steps {
		got = append(got, step.Operand.Name)
	}
	var want []operand.Name
	for _, o := range all {
		want = append(want, o.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-catalogue +steps:\n%s", diff)
	}
}

// The waits depend on the installed operands, not on the whole catalogue.
func TestWaitsFollowTheSpec(t *testing.T) {
	tests := map[string]struct {
		spec v1.ClusterPolicySpec
		want map[operand.Name][]labels.Marker
	}{
		"all operands": {want: map[operand.Name][]labels.Marker{
			"device-plugin":         {labels.MarkerToolkit},
			"gpu-feature-discovery": {labels.MarkerToolkit},
			"operator-validator":    {labels.MarkerDriver},
			"dcgm-exporter":         {labels.MarkerToolkit},
		}},
		"no toolkit: the validator writes the driver marker, and waits for none": {
			spec: v1.ClusterPolicySpec{Toolkit: &v1.ToolkitSpec{Enabled: new(false)}},
			want: map[operand.Name][]labels.Marker{
				"device-plugin": {labels.MarkerToolkit}, "gpu-feature-discovery": {labels.MarkerToolkit},
				"dcgm-exporter": {labels.MarkerToolkit},
			},
		},
		"no driver: pods still wait for the driver of the host": {
			spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(false)}},
			want: map[operand.Name][]labels.Marker{
				"device-plugin":         {labels.MarkerToolkit},
				"gpu-feature-discovery": {labels.MarkerToolkit},
				"operator-validator":    {labels.MarkerDriver},
				"dcgm-exporter":         {labels.MarkerToolkit},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[operand.Name][]labels.Marker{}
			for _, step := range plan.Compute(decide(t, test.spec), nil, []nodeinfo.Facts{ubuntu("a")}).Steps {
				if step.Action == plan.Apply && len(step.AwaitedMarkers) > 0 {
					got[step.Operand.Name] = step.AwaitedMarkers
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestForNode(t *testing.T) {
	expected := []plan.OperandOnNode{
		{Stage: v1.StageDriver, Operand: "driver"},
		{Stage: v1.StageToolkit, Operand: "container-toolkit"},
		{Stage: v1.StageDevicePlugin, Operand: "device-plugin"},
		{Stage: v1.StageValidated, Operand: "operator-validator"},
	}
	with := func(name operand.Name, change func(*plan.OperandOnNode)) []plan.OperandOnNode {
		stages := slices.Clone(expected)
		for i := range stages {
			if stages[i].Operand == name {
				change(&stages[i])
			}
		}
		return stages
	}
	without := func(name operand.Name) []plan.OperandOnNode {
		return slices.DeleteFunc(slices.Clone(expected), func(r plan.OperandOnNode) bool { return r.Operand == name })
	}
	tests := map[string]struct {
		spec  v1.ClusterPolicySpec
		facts nodeinfo.Facts
		want  []plan.OperandOnNode
		// noGPU: the kubelet need not advertise GPUs.
		noGPU bool
		// pluginOff is why the spec has no device plugin.
		pluginOff  string
		labelNotes []string
	}{
		"a new node needs everything": {facts: ubuntu("a"), want: expected},
		"a labelled node needs everything": {
			facts: changed(
				ubuntu("a"),
				func(f *nodeinfo.Facts) { f.Deploy["driver"], f.Deploy["device-plugin"] = "true", "true" },
			),
			want: expected,
		},
		"an empty label counts as none": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy["driver"] = "" }), want: expected,
		},
		"a driver on the host": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy["driver"] = "pre-installed" }),
			want: with("driver", func(r *plan.OperandOnNode) {
				r.Expectation, r.Message = plan.HostProvides, `label nvidia.com/gpu.deploy.driver is "pre-installed"`
			}),
		},
		"an operand that a user keeps off": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy["device-plugin"] = "false" }),
			want: with("device-plugin", func(r *plan.OperandOnNode) {
				r.Expectation, r.Reason = plan.OptedOut, v1.ReasonOperandPaused
				r.Message = `label nvidia.com/gpu.deploy.device-plugin is "false"`
			}),
		},
		"an operand that k8s-driver-manager has paused": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy["container-toolkit"] = "paused-for-driver-upgrade" }),
			want: with("container-toolkit", func(r *plan.OperandOnNode) {
				r.Expectation, r.Reason = plan.PausedByLabel, v1.ReasonOperandPaused
				r.Message = `label nvidia.com/gpu.deploy.container-toolkit is "paused-for-driver-upgrade"`
			}),
		},
		"an unknown value pauses, too": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy["driver"] = "maintenance" }),
			want: with("driver", func(r *plan.OperandOnNode) {
				r.Expectation, r.Reason = plan.PausedByLabel, v1.ReasonOperandPaused
				r.Message = `label nvidia.com/gpu.deploy.driver is "maintenance"`
			}),
		},
		"missing facts": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.OSVersion = "" }),
			want: with("driver", func(r *plan.OperandOnNode) {
				r.Expectation, r.Reason = plan.Refused, v1.ReasonFactsMissing
				r.Message = "no discovery labels for the operating system, which select the driver image"
			}),
		},
		"an unsupported runtime": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Runtime = "isulad" }),
			want: with("container-toolkit", func(r *plan.OperandOnNode) {
				r.Expectation, r.Reason = plan.Refused, v1.ReasonNotSupportedYet
				r.Message = `container runtime "isulad" is not supported, only containerd, CRI-O and Docker: ` +
					"install the toolkit on the host and set the node's label nvidia.com/gpu.deploy.container-toolkit to pre-installed"
			}),
		},
		"a disabled driver is no stage": {
			spec:  v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(false)}},
			facts: ubuntu("a"), want: without("driver"),
		},
		"without a device plugin something else must offer GPUs": {
			spec:  v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{Enabled: new(false)}},
			facts: ubuntu("a"), want: without("device-plugin"), pluginOff: "spec.devicePlugin.enabled is false",
		},
		"a node for virtual machines needs none of these": {
			spec:  v1.ClusterPolicySpec{SandboxWorkloads: &v1.SandboxWorkloadsSpec{Enabled: new(true)}},
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Workload = "vm-passthrough" }), noGPU: true,
		},
		"its label is ignored while sandbox workloads are disabled": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Workload = "vm-passthrough" }), want: expected,
			labelNotes: []string{`label nvidia.com/gpu.workload.config is "vm-passthrough", which is not read without ` +
				`spec.sandboxWorkloads.enabled: the node is served for workload container`},
		},
		"a label that names no workload": {
			spec:  v1.ClusterPolicySpec{SandboxWorkloads: &v1.SandboxWorkloadsSpec{Enabled: new(true)}},
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Workload = "vm" }), want: expected,
			labelNotes: []string{`label nvidia.com/gpu.workload.config is "vm", which is none of ` +
				`["container" "vm-passthrough" "vm-vgpu"]: the node is served for workload container`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := decide(t, test.spec).ForNode(test.facts)
			want := plan.NodePlan{
				Facts:            test.facts,
				Decision:         got.Decision,
				Essential:        test.want,
				NeedsAllocatable: !test.noGPU,
				PluginOff:        test.pluginOff,
				LabelNotes:       test.labelNotes,
				Auxiliary:        got.Auxiliary,
				Spec:             got.Spec,
			}
			want.Pool, _ = test.facts.PoolByFacts(nodeinfo.PoolCriteria{})
			if diff := cmp.Diff(want, got, ignoreInjector); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// ignoreInjector ignores Injector, which has a test of its own.
var ignoreInjector = cmpopts.IgnoreFields(plan.OperandOnNode{}, "Injector")

// Injected operands come after the toolkit, if the node is expected to run one.
func TestNodeStageAfter(t *testing.T) {
	for value, first := range map[string]operand.Name{
		"":                          "container-toolkit",
		"true":                      "container-toolkit",
		"paused-for-driver-upgrade": "container-toolkit",
		"pre-installed":             "",
		"false":                     "",
	} {
		t.Run(value, func(t *testing.T) {
			facts := changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy = map[string]string{"container-toolkit": value} })
			got := decide(t, v1.ClusterPolicySpec{}).ForNode(facts)
			after := map[operand.Name]operand.Name{}
			for _, stage := range slices.Concat(got.Essential, got.Auxiliary) {
				after[stage.Operand] = stage.Injector
			}
			want := map[operand.Name]operand.Name{
				"driver": "", "container-toolkit": "", "device-plugin": first, "operator-validator": first,
				"dcgm-exporter": first, "gpu-feature-discovery": first,
			}
			if diff := cmp.Diff(want, after); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
