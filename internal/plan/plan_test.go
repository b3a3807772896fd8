package plan_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/plan"
	"github.com/clusterpolicy/gpu-operator/test/scenarios"
)

// catalogue has the operands that the tables here list.
func catalogue(t *testing.T) operand.Catalogue {
	t.Helper()
	all, err := scenarios.Tabled()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// ubuntu is a GPU node as discovery describes it.
func ubuntu(name string) nodeinfo.Facts { return scenarios.Ubuntu(name) }

func changed(facts nodeinfo.Facts, change func(*nodeinfo.Facts)) nodeinfo.Facts {
	change(&facts)
	return facts
}

// what is a step without its instances.
type what struct {
	Action          plan.Action
	State           v1.OperandState
	Reason, Message string
	Instances       []string
}

func compute(t *testing.T, spec v1.ClusterPolicySpec, nodes ...nodeinfo.Facts) map[operand.Name]what {
	t.Helper()
	return computeFor(t, operand.Input{Spec: effective.Of(spec), Namespace: "gpu-operator"}, nodes)
}

func computeFor(t *testing.T, in operand.Input, nodes []nodeinfo.Facts) map[operand.Name]what {
	t.Helper()
	got := map[operand.Name]what{}
	for _, step := range plan.Compute(plan.Decide(catalogue(t), in), nil, nodes).Steps {
		w := what{Action: step.Action, State: step.State, Reason: step.Reason, Message: step.Message}
		for _, instance := range step.Instances {
			w.Instances = append(w.Instances, instance.Pool)
		}
		got[step.Operand.Name] = w
	}
	return got
}

const unfenced = "node discovery is disabled because ValidatingAdmissionPolicyBinding gpu-operator-node-discovery is missing: " +
	"apply config/admission, or use Node Feature Discovery"

const nriAlone = "spec.cdi.nriPluginEnabled needs the container toolkit: set spec.toolkit.enabled to true, or remove spec.cdi.nriPluginEnabled"

func TestCompute(t *testing.T) {
	apply := what{Action: plan.Apply, Instances: []string{""}}
	notNeeded := what{Action: plan.Remove, State: v1.OperandNotNeeded, Reason: "NotNeeded", Message: "no node needs it"}
	unshared := what{
		Action: plan.Remove, State: v1.OperandDisabled, Reason: v1.ReasonDisabledBySpec,
		Message: "spec.devicePlugin.config.name is not set: no configuration shares GPUs by MPS",
	}
	base := map[operand.Name]what{
		"gpu-feature-discovery": apply, "mps-control-daemon": unshared,
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
	with := func(change map[operand.Name]what) map[operand.Name]what {
		want := map[operand.Name]what{}
		for name, w := range base {
			want[name] = w
		}
		for name, w := range change {
			want[name] = w
		}
		return want
	}
	nobody := map[operand.Name]what{
		"gpu-feature-discovery": notNeeded,
		"dcgm-exporter":         notNeeded,
		"driver":                notNeeded, "container-toolkit": notNeeded, "device-plugin": notNeeded, "operator-validator": notNeeded,
	}
	contradiction := v1.ImageSpec{Image: "example.com/x:1", Version: "2"}
	const contradicted = `: image "example.com/x:1" is a whole reference: remove repository and version`
	nothing := map[operand.Reference]operand.Content{}
	tests := map[string]struct {
		spec  v1.ClusterPolicySpec
		nodes []nodeinfo.Facts
		// contents are nil where nobody has looked for what others make.
		contents map[operand.Reference]operand.Content
		want     map[operand.Name]what
	}{
		"a GPU node gets everything": {
			nodes: []nodeinfo.Facts{ubuntu("a")}, want: base,
		},
		"nodes of two systems get two drivers": {
			nodes: []nodeinfo.Facts{ubuntu("a"), changed(ubuntu("b"), func(f *nodeinfo.Facts) { f.OSID, f.OSVersion = "rhel", "9.6" })},
			want:  with(map[operand.Name]what{"driver": {Action: plan.Apply, Instances: []string{"rhel9-amd64", "ubuntu24.04-amd64"}}}),
		},
		"a node whose GPUs can be partitioned gets the MIG manager": {
			nodes: []nodeinfo.Facts{ubuntu("a"), changed(ubuntu("b"), func(f *nodeinfo.Facts) { f.MIGCapable = "true" })},
			want:  with(map[operand.Name]what{"mig-manager": apply}),
		},
		"no nodes need nothing but what costs nothing": {
			want: with(nobody),
		},
		"nodes without a GPU need nothing either": {
			nodes: []nodeinfo.Facts{changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.HasGPU = false })},
			want:  with(nobody),
		},
		"excluded nodes need nothing either": {
			nodes: []nodeinfo.Facts{changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Excluded = true })},
			want:  with(nobody),
		},
		"a node that lost its discovery labels still needs everything": {
			nodes: []nodeinfo.Facts{changed(ubuntu("a"), func(f *nodeinfo.Facts) {
				f.HasGPU, f.WasGPU, f.OSID, f.OSVersion, f.Pool = false, true, "", "", "ubuntu24.04-amd64"
			})},
			want: base,
		},
		"a paused node will need it again, and the DaemonSet stays": {
			nodes: []nodeinfo.Facts{changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy["driver"] = "paused-for-driver-upgrade" })},
			want:  base,
		},
		"unknown facts hold up the driver alone": {
			nodes: []nodeinfo.Facts{changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.OSID = "" })},
			want:  with(map[operand.Name]what{"driver": notNeeded}),
		},
		"a runtime that is not supported holds up the toolkit alone": {
			nodes: []nodeinfo.Facts{changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Runtime = "isulad" })},
			want:  with(map[operand.Name]what{"container-toolkit": notNeeded}),
		},
		"a node with another runtime takes nothing from the others": {
			nodes: []nodeinfo.Facts{ubuntu("a"), changed(ubuntu("b"), func(f *nodeinfo.Facts) { f.Runtime = "isulad" })},
			want:  base,
		},
		"a disabled operand is removed, and says by which field": {
			spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(false)}}, nodes: []nodeinfo.Facts{ubuntu("a")},
			want: with(map[operand.Name]what{"driver": {
				Action: plan.Remove, State: v1.OperandDisabled, Reason: v1.ReasonDisabledBySpec, Message: "spec.driver.enabled is false",
			}}),
		},
		"Node Feature Discovery alone: the built-in discovery is removed": {
			spec: v1.ClusterPolicySpec{NodeDiscovery: &v1.NodeDiscoverySpec{Mode: v1.DiscoveryNFD}}, nodes: []nodeinfo.Facts{ubuntu("a")},
			want: with(map[operand.Name]what{"node-discovery": {
				Action: plan.Remove, State: v1.OperandDisabled, Reason: v1.ReasonDisabledBySpec,
				Message: "spec.nodeDiscovery.mode is nfd: Node Feature Discovery labels the nodes",
			}}),
		},
		"without its fence the built-in discovery is removed, and nobody waits for it": {
			nodes: []nodeinfo.Facts{ubuntu("a")}, contents: nothing,
			want: with(map[operand.Name]what{"node-discovery": {
				Action: plan.Remove, State: v1.OperandDisabled, Reason: v1.ReasonFenceMissing, Message: unfenced,
			}}),
		},
		"without its fence the built-in discovery alone is refused, and what runs is left": {
			spec:  v1.ClusterPolicySpec{NodeDiscovery: &v1.NodeDiscoverySpec{Mode: v1.DiscoveryBuiltin}},
			nodes: []nodeinfo.Facts{ubuntu("a")}, contents: nothing,
			want: with(map[operand.Name]what{"node-discovery": {
				Action: plan.Hold, State: v1.OperandInvalid, Reason: v1.ReasonFenceMissing, Message: unfenced,
			}}),
		},
		"with its fence the built-in discovery runs": {
			spec:  v1.ClusterPolicySpec{NodeDiscovery: &v1.NodeDiscoverySpec{Mode: v1.DiscoveryBuiltin}},
			nodes: []nodeinfo.Facts{ubuntu("a")}, contents: map[operand.Reference]operand.Content{
				{Kind: operand.ValidatingAdmissionPolicyBinding, Name: labels.DiscoveryFence}: {},
			},
			want: base,
		},
		"the NRI plugin needs no RuntimeClasses, nor does who needs GPUs": {
			spec:  v1.ClusterPolicySpec{CDI: &v1.CDISpec{NRIPluginEnabled: new(true)}},
			nodes: []nodeinfo.Facts{changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.RuntimeVersion = "2.1.4" })},
			want: with(map[operand.Name]what{"runtime-classes": {
				Action: plan.Remove, State: v1.OperandDisabled, Reason: v1.ReasonDisabledBySpec,
				Message: "spec.cdi.nriPluginEnabled is true: pods get GPUs without a RuntimeClass",
			}}),
		},
		"the NRI plugin without the toolkit holds who needs GPUs": {
			spec: v1.ClusterPolicySpec{
				CDI: &v1.CDISpec{NRIPluginEnabled: new(true)}, Toolkit: &v1.ToolkitSpec{Enabled: new(false)},
				GFD: &v1.GFDSpec{Enabled: new(false)},
			},
			nodes: []nodeinfo.Facts{ubuntu("a")},
			want: with(map[operand.Name]what{
				"runtime-classes":       {Action: plan.Hold, State: v1.OperandInvalid, Reason: v1.ReasonInvalidSpec, Message: nriAlone},
				"container-toolkit":     {Action: plan.Remove, State: v1.OperandDisabled, Reason: v1.ReasonDisabledBySpec, Message: "spec.toolkit.enabled is false"},
				"gpu-feature-discovery": {Action: plan.Remove, State: v1.OperandDisabled, Reason: v1.ReasonDisabledBySpec, Message: "spec.gfd.enabled is false"},
				"device-plugin":         {Action: plan.Hold, State: v1.OperandWaiting, Reason: v1.ReasonWaitingForOperand, Message: "needs runtime-classes, which is not installed: " + nriAlone},
				"operator-validator":    {Action: plan.Hold, State: v1.OperandWaiting, Reason: v1.ReasonWaitingForOperand, Message: "needs runtime-classes, which is not installed: " + nriAlone},
				"dcgm-exporter":         {Action: plan.Hold, State: v1.OperandWaiting, Reason: v1.ReasonWaitingForOperand, Message: "needs runtime-classes, which is not installed: " + nriAlone},
			}),
		},
		"a wrong image is held, and the others go on": {
			spec: v1.ClusterPolicySpec{
				Driver: &v1.DriverSpec{ImageSpec: contradiction}, Toolkit: &v1.ToolkitSpec{ImageSpec: contradiction},
				DevicePlugin: &v1.DevicePluginSpec{ImageSpec: contradiction}, Validator: &v1.ValidatorSpec{ImageSpec: contradiction},
				GFD: &v1.GFDSpec{ImageSpec: contradiction},
			},
			nodes: []nodeinfo.Facts{ubuntu("a")},
			want: with(map[operand.Name]what{
				"runtime-classes":    apply,
				"mps-control-daemon": unshared,
				"gpu-feature-discovery": {
					Action: plan.Hold, State: v1.OperandInvalid, Reason: v1.ReasonInvalidSpec, Message: "spec.gfd" + contradicted,
				},
				"mig-manager":        notNeeded,
				"node-discovery":     {Action: plan.Hold, State: v1.OperandInvalid, Reason: v1.ReasonInvalidSpec, Message: "spec.validator" + contradicted},
				"driver":             {Action: plan.Hold, State: v1.OperandInvalid, Reason: v1.ReasonInvalidSpec, Message: "spec.driver" + contradicted},
				"container-toolkit":  {Action: plan.Hold, State: v1.OperandInvalid, Reason: v1.ReasonInvalidSpec, Message: "spec.toolkit" + contradicted},
				"device-plugin":      {Action: plan.Hold, State: v1.OperandInvalid, Reason: v1.ReasonInvalidSpec, Message: "spec.devicePlugin" + contradicted},
				"operator-validator": {Action: plan.Hold, State: v1.OperandInvalid, Reason: v1.ReasonInvalidSpec, Message: "spec.validator" + contradicted},
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
	for _, step := range plan.Compute(plan.Decide(all, operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}), nil, []nodeinfo.Facts{ubuntu("a")}).Steps {
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

// The waits follow from what the spec installs, not from what the catalogue holds.
func TestWaitsFollowTheSpec(t *testing.T) {
	tests := map[string]struct {
		spec v1.ClusterPolicySpec
		want map[operand.Name][]labels.Marker
	}{
		"all operands": {want: map[operand.Name][]labels.Marker{
			"device-plugin": {labels.MarkerToolkit}, "gpu-feature-discovery": {labels.MarkerToolkit}, "operator-validator": {labels.MarkerDriver},
			"dcgm-exporter": {labels.MarkerToolkit},
		}},
		"no toolkit: the validator proves the driver, and waits for nobody": {
			spec: v1.ClusterPolicySpec{Toolkit: &v1.ToolkitSpec{Enabled: new(false)}},
			want: map[operand.Name][]labels.Marker{
				"device-plugin": {labels.MarkerToolkit}, "gpu-feature-discovery": {labels.MarkerToolkit},
				"dcgm-exporter": {labels.MarkerToolkit},
			},
		},
		"no driver: that of the host is waited for all the same": {
			spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(false)}},
			want: map[operand.Name][]labels.Marker{
				"device-plugin": {labels.MarkerToolkit}, "gpu-feature-discovery": {labels.MarkerToolkit}, "operator-validator": {labels.MarkerDriver},
				"dcgm-exporter": {labels.MarkerToolkit},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[operand.Name][]labels.Marker{}
			for _, step := range plan.Compute(plan.Decide(catalogue(t), operand.Input{Spec: effective.Of(test.spec)}), nil, []nodeinfo.Facts{ubuntu("a")}).Steps {
				if step.Action == plan.Apply && len(step.Waits) > 0 {
					got[step.Operand.Name] = step.Waits
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestForNode(t *testing.T) {
	expected := []plan.Rung{
		{Stage: v1.StageDriver, Operand: "driver"},
		{Stage: v1.StageToolkit, Operand: "container-toolkit"},
		{Stage: v1.StageDevicePlugin, Operand: "device-plugin"},
		{Stage: v1.StageValidated, Operand: "operator-validator"},
	}
	with := func(name operand.Name, change func(*plan.Rung)) []plan.Rung {
		rungs := slices.Clone(expected)
		for i := range rungs {
			if rungs[i].Operand == name {
				change(&rungs[i])
			}
		}
		return rungs
	}
	without := func(name operand.Name) []plan.Rung {
		return slices.DeleteFunc(slices.Clone(expected), func(r plan.Rung) bool { return r.Operand == name })
	}
	tests := map[string]struct {
		spec  v1.ClusterPolicySpec
		facts nodeinfo.Facts
		want  []plan.Rung
		// noGPU: the kubelet need not advertise any.
		noGPU bool
	}{
		"a new node needs everything": {facts: ubuntu("a"), want: expected},
		"a labelled node needs everything": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy["driver"], f.Deploy["device-plugin"] = "true", "true" }),
			want:  expected,
		},
		"an empty label is as good as none": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy["driver"] = "" }), want: expected,
		},
		"a driver on the host": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy["driver"] = "pre-installed" }),
			want:  with("driver", func(r *plan.Rung) { r.Need = plan.HostProvides }),
		},
		"an operand that a user keeps off": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy["device-plugin"] = "false" }),
			want: with("device-plugin", func(r *plan.Rung) {
				r.Need, r.Reason, r.Message = plan.OptedOut, v1.ReasonOperandPaused, `label nvidia.com/gpu.deploy.device-plugin is "false"`
			}),
		},
		"an operand that k8s-driver-manager has paused": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy["container-toolkit"] = "paused-for-driver-upgrade" }),
			want: with("container-toolkit", func(r *plan.Rung) {
				r.Need, r.Reason = plan.Paused, v1.ReasonOperandPaused
				r.Message = `label nvidia.com/gpu.deploy.container-toolkit is "paused-for-driver-upgrade"`
			}),
		},
		"a value that nobody has told us about pauses, too": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy["driver"] = "maintenance" }),
			want: with("driver", func(r *plan.Rung) {
				r.Need, r.Reason, r.Message = plan.Paused, v1.ReasonOperandPaused, `label nvidia.com/gpu.deploy.driver is "maintenance"`
			}),
		},
		"facts that are missing": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.OSVersion = "" }),
			want: with("driver", func(r *plan.Rung) {
				r.Need, r.Reason = plan.NotPossible, v1.ReasonFactsMissing
				r.Message = "no discovery labels for the operating system, which the driver image is chosen by"
			}),
		},
		"a runtime that is not supported": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Runtime = "isulad" }),
			want: with("container-toolkit", func(r *plan.Rung) {
				r.Need, r.Reason = plan.NotPossible, v1.ReasonNotSupportedYet
				r.Message = `container runtime "isulad" is not supported, only containerd, CRI-O and Docker: ` +
					"install the toolkit on the host and set the node's label nvidia.com/gpu.deploy.container-toolkit to pre-installed"
			}),
		},
		"a driver that the spec turns off is no rung": {
			spec:  v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(false)}},
			facts: ubuntu("a"), want: without("driver"),
		},
		"without a device plugin nothing is allocatable": {
			spec:  v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{Enabled: new(false)}},
			facts: ubuntu("a"), want: without("device-plugin"), noGPU: true,
		},
		"a node for virtual machines needs none of these": {
			spec:  v1.ClusterPolicySpec{SandboxWorkloads: &v1.SandboxWorkloadsSpec{Enabled: new(true)}},
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Workload = "vm-passthrough" }), noGPU: true,
		},
		"its label does not count while sandbox workloads are off": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Workload = "vm-passthrough" }), want: expected,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			all := catalogue(t)
			got := plan.Decide(all, operand.Input{Spec: effective.Of(test.spec)}).ForNode(test.facts)
			want := plan.Node{Facts: test.facts, Refused: got.Refused, Rungs: test.want, NeedsAllocatable: !test.noGPU, Beside: got.Beside, Spec: got.Spec}
			want.Pool, _ = test.facts.WantedPool(nodeinfo.PoolKey{})
			if diff := cmp.Diff(want, got, inAnyOrder); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// inAnyOrder leaves out after which operand another one comes, which has a test of its own.
var inAnyOrder = cmpopts.IgnoreFields(plan.Rung{}, "After")

// What the container runtime injects GPUs into comes after the toolkit, where one is expected.
func TestWhatComesAfterTheToolkit(t *testing.T) {
	for value, first := range map[string]operand.Name{
		"": "container-toolkit", "true": "container-toolkit", "paused-for-driver-upgrade": "container-toolkit", "pre-installed": "", "false": "",
	} {
		t.Run(value, func(t *testing.T) {
			facts := changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy = map[string]string{"container-toolkit": value} })
			got := plan.Decide(catalogue(t), operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}).ForNode(facts)
			after := map[operand.Name]operand.Name{}
			for _, rung := range slices.Concat(got.Rungs, got.Beside) {
				after[rung.Operand] = rung.After
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
