package plan_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

const (
	deploy = "nvidia.com/gpu.deploy."
	anchor = "clusterpolicy.github.io/"
)

// set returns a label change to the value; removed is the other change.
func set(value string) *string { return &value }

var removed *string

// labelled returns the labels of a node with all labels of the operator, with a change applied.
func labelled(change map[string]*string) map[string]string {
	return after(map[string]string{
		"nvidia.com/gpu.present": "true", "nvidia.com/gpu-operator.pool": "ubuntu24.04-amd64",
		"nvidia.com/gpu-operator.runtime": "containerd",
		anchor + "driver":                 "ubuntu24.04-amd64", anchor + "container-toolkit": "containerd",
		deploy + "driver": "true", deploy + "container-toolkit": "true", deploy + "device-plugin": "true",
		deploy + "operator-validator": "true", deploy + "gpu-feature-discovery": "true", deploy + "client": "true",
		deploy + "dcgm":                 "true",
		deploy + "dcgm-exporter":        "true",
		deploy + "node-status-exporter": "true",
		"kubernetes.io/hostname":        "a",
	}, change)
}

// after returns the labels after a patch.
func after(current map[string]string, changes map[string]*string) map[string]string {
	result := map[string]string{}
	for key, value := range current {
		result[key] = value
	}
	for key, value := range changes {
		if value == nil {
			delete(result, key)
			continue
		}
		result[key] = *value
	}
	return result
}

func TestNodeLabels(t *testing.T) {
	moved := changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.OSVersion, f.Pool = "26.04", "ubuntu24.04-amd64" })
	tests := map[string]struct {
		facts       nodeinfo.Facts
		current     map[string]string
		driverReady bool
		want        map[string]*string
	}{
		"a new node gets all labels": {
			facts: ubuntu("a"),
			want: map[string]*string{
				"nvidia.com/gpu.present": set("true"), "nvidia.com/gpu-operator.pool": set("ubuntu24.04-amd64"),
				"nvidia.com/gpu-operator.runtime": set("containerd"),
				anchor + "driver":                 set("ubuntu24.04-amd64"), anchor + "container-toolkit": set("containerd"),
				deploy + "driver": set("true"), deploy + "container-toolkit": set("true"), deploy + "device-plugin": set("true"),
				deploy + "operator-validator":    set("true"),
				deploy + "gpu-feature-discovery": set("true"),
				deploy + "client":                set("true"),
				deploy + "dcgm":                  set("true"),
				deploy + "dcgm-exporter":         set("true"),
				deploy + "node-status-exporter":  set("true"),
			},
		},
		"a labelled node gets no write": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Pool = "ubuntu24.04-amd64" }), current: labelled(nil),
			want: map[string]*string{},
		},
		"the value false stays": {
			facts: ubuntu("a"), current: labelled(map[string]*string{deploy + "device-plugin": set("false")}),
			want: map[string]*string{},
		},
		"pause values of other tools stay": {
			facts: ubuntu("a"),
			current: labelled(map[string]*string{
				deploy + "container-toolkit": set("paused-for-driver-upgrade"),
				deploy + "device-plugin":     set("paused-for-mig-change"),
				deploy + "client":            set("x_paused-for-driver-upgrade"),
			}),
			want: map[string]*string{},
		},
		"pre-installed stays": {
			facts: ubuntu("a"), current: labelled(map[string]*string{deploy + "driver": set("pre-installed")}),
			want: map[string]*string{},
		},
		"an empty value counts as absent": {
			facts: ubuntu("a"), current: labelled(map[string]*string{deploy + "driver": set("")}),
			want: map[string]*string{deploy + "driver": set("true")},
		},
		"a removed label is added again": {
			facts:   ubuntu("a"),
			current: labelled(map[string]*string{deploy + "driver": removed, "nvidia.com/gpu.present": removed}),
			want:    map[string]*string{deploy + "driver": set("true"), "nvidia.com/gpu.present": set("true")},
		},
		"an excluded node loses exactly the deploy labels that the operator wrote": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.ExcludedByLabel = true }),
			current: labelled(map[string]*string{
				deploy + "operands":      set("false"),
				deploy + "device-plugin": set("false"),
				deploy + "driver":        set("paused-for-driver-upgrade"),
			}),
			want: map[string]*string{
				anchor + "driver": removed, anchor + "container-toolkit": removed,
				deploy + "container-toolkit":     removed,
				deploy + "operator-validator":    removed,
				deploy + "gpu-feature-discovery": removed,
				deploy + "client":                removed,
				deploy + "dcgm":                  removed,
				deploy + "dcgm-exporter":         removed,
				deploy + "node-status-exporter":  removed,
			},
		},
		"deploy labels that are not the operator's stay": {
			facts: ubuntu("a"), current: labelled(map[string]*string{deploy + "another-tools": set("true")}),
			want: map[string]*string{},
		},
		"an operand that cannot serve the node gets no label there": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Runtime = "isulad" }),
			want: map[string]*string{
				"nvidia.com/gpu.present": set("true"), "nvidia.com/gpu-operator.pool": set("ubuntu24.04-amd64"),
				anchor + "driver": set("ubuntu24.04-amd64"),
				deploy + "driver": set("true"), deploy + "device-plugin": set("true"),
				deploy + "operator-validator":    set("true"),
				deploy + "gpu-feature-discovery": set("true"),
				deploy + "client":                set("true"),
				deploy + "dcgm":                  set("true"),
				deploy + "dcgm-exporter":         set("true"),
				deploy + "node-status-exporter":  set("true"),
			},
		},
		"without facts the node gets no pool and no driver": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.OSID = "" }),
			want: map[string]*string{
				"nvidia.com/gpu-operator.runtime": set("containerd"), anchor + "container-toolkit": set("containerd"),
				"nvidia.com/gpu.present":         set("true"),
				deploy + "container-toolkit":     set("true"),
				deploy + "device-plugin":         set("true"),
				deploy + "operator-validator":    set("true"),
				deploy + "gpu-feature-discovery": set("true"),
				deploy + "client":                set("true"),
				deploy + "dcgm":                  set("true"),
				deploy + "dcgm-exporter":         set("true"),
				deploy + "node-status-exporter":  set("true"),
			},
		},
		"missing discovery labels remove nothing": {
			facts: changed(ubuntu("a"), func(f *nodeinfo.Facts) {
				f.HasGPU, f.WasGPU, f.HasDiscoveryLabels = false, true, false
				f.OSID, f.OSVersion, f.Pool = "", "", "ubuntu24.04-amd64"
			}),
			current: labelled(nil), driverReady: true,
			want: map[string]*string{},
		},
		"the pool does not change while a driver runs": {
			facts: moved, current: labelled(nil), driverReady: true,
			want: map[string]*string{},
		},
		"the pool changes when no driver runs": {
			facts: moved, current: labelled(nil),
			want: map[string]*string{
				"nvidia.com/gpu-operator.pool": set("ubuntu26.04-amd64"),
				anchor + "driver":              set("ubuntu26.04-amd64"),
			},
		},
		"a node with a new runtime changes its toolkit, whatever runs there": {
			facts:       changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Runtime, f.Distribution = "cri-o", "openshift" }),
			current:     labelled(nil),
			driverReady: true,
			want: map[string]*string{
				"nvidia.com/gpu-operator.runtime": set("openshift"),
				anchor + "container-toolkit":      set("openshift"),
			},
		},
		"an unknown runtime changes nothing": {
			facts:       changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Runtime = "isulad" }),
			current:     labelled(nil),
			driverReady: true,
			want:        map[string]*string{},
		},
		"a node without a reported runtime keeps its toolkit": {
			facts:       changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Runtime, f.Layout = "", "containerd" }),
			current:     labelled(nil),
			driverReady: true,
			want:        map[string]*string{},
		},
		"a removed runtime label is added again": {
			facts:       ubuntu("a"),
			current:     labelled(map[string]*string{"nvidia.com/gpu-operator.runtime": removed}),
			driverReady: true,
			want:        map[string]*string{"nvidia.com/gpu-operator.runtime": set("containerd")},
		},
		"a removed pool label is added again while a driver runs": {
			facts:       ubuntu("a"),
			current:     labelled(map[string]*string{"nvidia.com/gpu-operator.pool": removed}),
			driverReady: true,
			want:        map[string]*string{"nvidia.com/gpu-operator.pool": set("ubuntu24.04-amd64")},
		},
		"a removed pool label is added again with the anchor's value, whatever the facts are": {
			facts: moved, current: labelled(map[string]*string{"nvidia.com/gpu-operator.pool": removed}), driverReady: true,
			want: map[string]*string{"nvidia.com/gpu-operator.pool": set("ubuntu24.04-amd64")},
		},
		"removed anchors are added again": {
			facts:       changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Pool = "ubuntu24.04-amd64" }),
			current:     labelled(map[string]*string{anchor + "driver": removed, anchor + "container-toolkit": removed}),
			driverReady: true,
			want: map[string]*string{
				anchor + "driver":            set("ubuntu24.04-amd64"),
				anchor + "container-toolkit": set("containerd"),
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			running := plan.ReadyPods{Driver: test.driverReady, Injector: true}
			got := decide(t, v1.ClusterPolicySpec{}).NodeLabels(test.facts, test.current, running)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Injected operands are labelled once the toolkit is ready, and then keep their labels.
func TestInjectedOperandsAreLabelledAfterTheToolkit(t *testing.T) {
	first := map[string]*string{
		deploy + "driver":               set("true"),
		deploy + "container-toolkit":    set("true"),
		deploy + "client":               set("true"),
		deploy + "node-status-exporter": set("true"),
	}
	rest := map[string]*string{deploy + "device-plugin": set("true"), deploy + "operator-validator": set("true"),
		deploy + "gpu-feature-discovery": set("true"), deploy + "dcgm": set("true"), deploy + "dcgm-exporter": set("true")}
	tests := map[string]struct {
		spec     v1.ClusterPolicySpec
		facts    nodeinfo.Facts
		current  map[string]string
		injector bool
		want     map[string]*string
	}{
		"a new node":                     {facts: ubuntu("a"), want: first},
		"the toolkit is ready":           {facts: ubuntu("a"), current: after(nil, first), injector: true, want: rest},
		"the toolkit is no longer ready": {facts: ubuntu("a"), current: labelled(nil)},
		"a label is missing": {
			facts:   ubuntu("a"),
			current: labelled(map[string]*string{deploy + "device-plugin": removed}),
		},
		"the host has the toolkit":     {facts: withToolkit("pre-installed"), current: after(nil, first), want: rest},
		"a user keeps the toolkit off": {facts: withToolkit("false"), current: after(nil, first), want: rest},
		"the toolkit is paused":        {facts: withToolkit("paused-for-driver-upgrade"), current: after(nil, first)},
		"a paused toolkit is still ready": {
			facts:    withToolkit("paused-for-driver-upgrade"),
			current:  after(nil, first),
			injector: true,
		},
		"the toolkit cannot be served": {
			facts:   changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Runtime = "isulad" }),
			current: after(nil, first),
			want:    rest,
		},
		"the toolkit is disabled": {
			spec:    v1.ClusterPolicySpec{Toolkit: &v1.ToolkitSpec{Enabled: new(false)}},
			facts:   ubuntu("a"),
			current: after(nil, first),
			want:    rest,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			decisions := decide(t, test.spec)
			got := decisions.NodeLabels(test.facts, test.current, plan.ReadyPods{Injector: test.injector})
			maps.DeleteFunc(got, func(key string, _ *string) bool { return !strings.HasPrefix(key, deploy) })
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// withToolkit returns a node whose deploy label of the toolkit has this value.
func withToolkit(value string) nodeinfo.Facts {
	return changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Deploy = map[string]string{"container-toolkit": value} })
}

// One patch is enough for a node whose toolkit is ready: its result needs no other.
func TestNodeLabelsSettleAfterOnePatch(t *testing.T) {
	for name, change := range map[string]func(*nodeinfo.Facts){
		"plain":    func(*nodeinfo.Facts) {},
		"excluded": func(f *nodeinfo.Facts) { f.ExcludedByLabel = true },
		"refused":  func(f *nodeinfo.Facts) { f.Runtime = "isulad" },
		"unknown":  func(f *nodeinfo.Facts) { f.OSID = "" },
	} {
		t.Run(name, func(t *testing.T) {
			facts := changed(ubuntu("a"), change)
			current := after(nil, decide(t, v1.ClusterPolicySpec{}).NodeLabels(facts, nil, plan.ReadyPods{Injector: true}))
			facts.Pool = current["nvidia.com/gpu-operator.pool"]
			if again := decide(t, v1.ClusterPolicySpec{}).NodeLabels(facts, current, plan.ReadyPods{Injector: true}); len(
				again,
			) > 0 {
				t.Errorf("the second patch is %v", again)
			}
		})
	}
}

// A node that becomes one for virtual machines loses exactly the labels for containers.
func TestLabelsOfVMNodes(t *testing.T) {
	in := operand.Input{
		Spec: effective.Of(v1.ClusterPolicySpec{SandboxWorkloads: &v1.SandboxWorkloadsSpec{Enabled: new(true)}}),
	}
	facts := changed(
		ubuntu("a"),
		func(f *nodeinfo.Facts) { f.Workload, f.Pool = nodeinfo.WorkloadVMPassthrough, "ubuntu24.04-amd64" },
	)
	current := labelled(map[string]*string{"nvidia.com/gpu.deploy.dcgm": set("paused-for-driver-upgrade")})
	current = after(
		current,
		plan.Decide(catalogue(t), in).NodeLabels(facts, current, plan.ReadyPods{Driver: true, Injector: true}),
	)
	want := map[string]string{
		"nvidia.com/gpu.present":       "true",
		"nvidia.com/gpu.deploy.client": "true",
		"nvidia.com/gpu.deploy.dcgm":   "paused-for-driver-upgrade",
		"nvidia.com/gpu-operator.pool": "ubuntu24.04-amd64", "nvidia.com/gpu-operator.runtime": "containerd",
		"kubernetes.io/hostname": "a",
	}
	if diff := cmp.Diff(want, current); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, step := range plan.Compute(plan.Decide(catalogue(t), in), nil, []nodeinfo.Facts{facts}).Steps {
		if len(step.Operand.Workloads) > 0 && step.State != v1.OperandNotNeeded && step.State != v1.OperandDisabled {
			t.Errorf("%s is %s: %s", step.Operand.Name, step.State, step.Action)
		}
	}
}

func TestReleasedLabels(t *testing.T) {
	own := map[string]*string{
		"nvidia.com/gpu-operator.runtime": removed, anchor + "driver": removed, anchor + "container-toolkit": removed,
		"nvidia.com/gpu-operator.pool": removed, deploy + "driver": removed, deploy + "container-toolkit": removed,
		deploy + "device-plugin":         removed,
		deploy + "operator-validator":    removed,
		deploy + "gpu-feature-discovery": removed,
		deploy + "client":                removed,
		deploy + "dcgm":                  removed,
		deploy + "dcgm-exporter":         removed,
		deploy + "node-status-exporter":  removed,
	}
	with := func(key string, value *string) map[string]*string {
		want := map[string]*string{key: value}
		for k, v := range own {
			want[k] = v
		}
		return want
	}
	tests := map[string]struct {
		current map[string]string
		present string
		want    map[string]*string
	}{
		"the policy is deleted: all labels of the operator are removed": {
			current: labelled(nil), want: with("nvidia.com/gpu.present", removed),
		},
		"the GPU is removed: gpu.present becomes false": {
			current: labelled(nil), present: "false", want: with("nvidia.com/gpu.present", set("false")),
		},
		"values of others stay": {
			current: map[string]string{
				deploy + "operands": "false", deploy + "driver": "mine", deploy + "device-plugin": "false",
				deploy + "another-tools": "true", deploy + "others": "paused-for-driver-upgrade",
			},
			want: map[string]*string{},
		},
		"values that operands have written are removed with the policy": {
			current: map[string]string{
				deploy + "driver": "pre-installed", deploy + "client": "paused-for-driver-upgrade",
				deploy + "device-plugin": "paused-for-mig-change", "nvidia.com/gpu-operator.cleanup": "true",
			},
			want: map[string]*string{
				deploy + "driver": removed, deploy + "client": removed, deploy + "device-plugin": removed,
				"nvidia.com/gpu-operator.cleanup": removed,
			},
		},
		"a node that has lost its GPU keeps the values that operands have written": {
			current: map[string]string{deploy + "driver": "pre-installed"}, present: "false", want: map[string]*string{},
		},
		"a node that was never labelled gets no write": {
			current: map[string]string{"kubernetes.io/hostname": "a"}, present: "false", want: map[string]*string{},
		},
		"a released node gets no write": {
			current: map[string]string{"nvidia.com/gpu.present": "false"}, present: "false", want: map[string]*string{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := plan.ReleasedLabels(catalogue(t), test.current, test.present)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
