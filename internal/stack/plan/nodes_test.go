package plan_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/test/golden"
)

// planned is a spec and a node: the node is like ubuntu("a"), with the labels after a first pass.
type planned struct {
	spec   v1.ClusterPolicySpec
	in     func(*operand.Input)
	change func(*nodeinfo.Facts)
	// current changes the labels of the node; an empty value removes one.
	current map[string]string
}

// settled are the facts of a node on which the operator has installed its stack.
func settled(f *nodeinfo.Facts) {
	f.WasGPU, f.Pool, f.Layout = true, "ubuntu24.04-amd64", "containerd"
	f.Deploy = map[string]string{"driver": "true", "container-toolkit": "true", "device-plugin": "true"}
}

func withLabel(key, value string) func(*nodeinfo.Facts) {
	return func(f *nodeinfo.Facts) { f.Labels = map[string]string{key: value} }
}

func both(changes ...func(*nodeinfo.Facts)) func(*nodeinfo.Facts) {
	return func(f *nodeinfo.Facts) {
		for _, change := range changes {
			change(f)
		}
	}
}

func deployed(name, value string) func(*nodeinfo.Facts) {
	return func(f *nodeinfo.Facts) { f.Deploy = map[string]string{name: value} }
}

func drivers(objects ...operand.NVIDIADriver) func(*operand.Input) {
	return func(in *operand.Input) { in.NVIDIADrivers = append([]operand.NVIDIADriver{}, objects...) }
}

// plannedNodes are the cases by name.
func plannedNodes() map[string]planned {
	crd := v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UseNvidiaDriverCRD: new(true)}}
	refused := object("refused", "a", "590.44.01")
	refused.Refused = operand.Refuse(v1.ReasonNotSupportedYet, "it is not supported")
	layout := func(name string) v1.ClusterPolicySpec {
		return v1.ClusterPolicySpec{MIGManager: &v1.MIGManagerSpec{Config: &v1.MIGManagerConfigSpec{Default: &name}}}
	}
	mig, disabled := layout("all-1g.10gb"), layout(labels.MIGAllDisabled)
	featured := v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{
		NodeSelector: v1.Labels{"feature.node.kubernetes.io/x": "y"},
	}}
	configured := func(in *operand.Input) {
		in.Contents = map[operand.Reference]operand.Content{
			{Kind: operand.ConfigMap, Name: "c"}: {Keys: []string{"a", "b"}},
		}
	}
	capable := func(f *nodeinfo.Facts) { f.MIGCapable, f.Product = "true", "NVIDIA-H100-80GB-HBM3" }
	pools := v1.ClusterPolicySpec{NodePools: []v1.NodePoolSpec{
		{Name: "one", NodeSelector: v1.NodePoolSelector{"team": "a"}, Driver: &v1.NodePoolDriverSpec{
			ImageSpec: v1.ImageSpec{Version: "590.44.01"},
		}},
		{Name: "two", NodeSelector: v1.NodePoolSelector{"team": "b"}, MIG: &v1.MIGSpec{Strategy: v1.MIGStrategyMixed}},
	}}
	selected := v1.ClusterPolicySpec{Driver: &v1.DriverSpec{PlacementSpec: selecting(v1.Labels{"tier": "gpu"})}}
	return map[string]planned{
		"new":       {},
		"installed": {change: settled},
		"no labels any more": {
			change: both(settled, func(f *nodeinfo.Facts) { f.HasGPU, f.HasDiscoveryLabels = false, false }),
		},
		"no system any more":     {change: both(settled, func(f *nodeinfo.Facts) { f.OSID, f.OSVersion = "", "" })},
		"another system":         {change: both(settled, func(f *nodeinfo.Facts) { f.OSVersion = "22.04" })},
		"another runtime":        {change: both(settled, func(f *nodeinfo.Facts) { f.Runtime, f.Layout = "cri-o", "" })},
		"an unknown runtime":     {change: func(f *nodeinfo.Facts) { f.Runtime = "" }},
		"excluded":               {change: both(settled, func(f *nodeinfo.Facts) { f.ExcludedByLabel = true })},
		"for virtual machines":   {change: func(f *nodeinfo.Facts) { f.Workload = nodeinfo.Workload("vm-passthrough") }},
		"of an unknown workload": {change: func(f *nodeinfo.Facts) { f.Workload = "machines" }},

		"driver by the host": {change: deployed("driver", labels.DeployPreInstalled)},
		"driver turned off":  {change: deployed("driver", labels.False)},
		"driver paused":      {change: deployed("driver", "paused-for-driver-upgrade")},
		"toolkit turned off": {change: deployed("container-toolkit", labels.False)},
		"toolkit paused":     {change: deployed("container-toolkit", "paused-for-driver-upgrade")},
		"mig-manager paused": {spec: mig, change: both(capable, deployed("mig-manager", "paused-for-driver-upgrade"))},
		"mig-manager off": {
			spec:   mig,
			change: both(capable, deployed("mig-manager", labels.False), withLabel(labels.MIGConfig, "all-2g.20gb")),
		},
		"health agent off":     {change: deployed("health-agent", labels.False)},
		"health agent paused":  {change: deployed("health-agent", "paused-by-me")},
		"dcgm turned off":      {change: deployed("dcgm", labels.False)},
		"an operand like true": {change: deployed("device-plugin", "yes")},
		"unknown deploy labels": {change: func(f *nodeinfo.Facts) {
			f.Deploy = map[string]string{
				"driverr": "false", "vfio-manager": "false", "cc-manager": "true", "client": "false", "nvsm": "false",
				"operands":     "no",
				"kata-manager": "paused-for-x", "sandbox-validator": "",
			}
		}},
		"operands are on": {change: deployed("operands", labels.True)},
		"labels of virtual machines": {change: func(f *nodeinfo.Facts) {
			f.Labels = map[string]string{labels.VGPUConfig: "a", labels.CCMode: "on", labels.CCMode + labels.StateSuffix: "on"}
		}},
		"an upgrade is skipped": {change: withLabel(labels.UpgradeSkip, labels.True)},
		"an upgrade is not":     {change: withLabel(labels.UpgradeSkip, "yes")},

		"driver off": {spec: v1.ClusterPolicySpec{Driver: &v1.DriverSpec{Enabled: new(false)}}, change: settled},
		"plugin off": {
			spec: v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{Enabled: new(false)}}, change: settled,
		},
		"driver selected":   {spec: selected, change: withLabel("tier", "gpu")},
		"driver unselected": {spec: selected},
		"driver retained":   {spec: selected, change: settled, current: map[string]string{"tier": ""}},
		"nothing selected": {
			spec: v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{NodeSelector: v1.Labels{"tier": "gpu"}}},
		},
		"a feature is missing": {
			spec:   featured,
			change: settled,
		},
		"a feature is missing for long": {
			spec:   featured,
			change: both(settled, func(f *nodeinfo.Facts) { f.SelectorLabelGraceOver = true }),
		},
		"a feature is missing of an excluded node": {
			spec:   featured,
			change: both(settled, func(f *nodeinfo.Facts) { f.ExcludedByLabel = true }),
		},

		"of node pool one":     {spec: pools, change: withLabel("team", "a")},
		"of node pool two":     {spec: pools, change: withLabel("team", "b")},
		"moves to a node pool": {spec: pools, change: both(settled, withLabel("team", "a"))},
		"of none":              {spec: pools, change: withLabel("team", "c")},
		"was of one that is gone": {spec: pools, change: settled, current: map[string]string{
			labels.NodePool: "gone", labels.NodePoolPrefix + "driver": "gone", labels.PoolNodePool: "gone",
		}},

		"NVIDIADrivers were not read": {spec: crd, change: settled},
		"no NVIDIADriver": {
			spec: crd, in: drivers(object("b", "b", "590.44.01")), change: both(settled, withLabel("team", "a")),
		},
		"an NVIDIADriver": {
			spec: crd, in: drivers(object("b", "b", "590.44.01"), object("a", "a", "590.44.02")), change: withLabel("team", "a"),
		},
		"its NVIDIADriver is gone": {
			spec: crd, in: drivers(object("b", "b", "590.44.01")), change: settled,
			current: map[string]string{labels.DriverOwner: "a"},
		},
		"two NVIDIADrivers": {
			spec: crd, in: drivers(object("b", "b", "590.44.01"), object("a", "a", "590.44.02"), object("c", "a", "590.44.03")),
			change: withLabel("team", "a"),
		},
		"two NVIDIADrivers of a labelled node": {
			spec: crd, in: drivers(object("a", "a", "590.44.02"), object("c", "a", "590.44.03")),
			change: func(f *nodeinfo.Facts) { f.Labels = map[string]string{"team": "a", labels.DriverOwner: "c"} },
		},
		"a refused NVIDIADriver": {
			spec: crd, in: drivers(object("b", "b", "590.44.01"), refused), change: withLabel("team", "a"),
		},

		"a MIG layout": {spec: mig, change: both(settled, capable)},
		"a MIG layout that it has": {spec: mig, change: both(settled, capable, withLabel(labels.MIGConfig, "all-1g.10gb"),
			func(f *nodeinfo.Facts) { f.MIGWritten = "all-1g.10gb" })},
		"a MIG layout after another": {spec: mig, change: both(settled, capable, withLabel(labels.MIGConfig, "all-2g.20gb"),
			func(f *nodeinfo.Facts) { f.MIGWritten = "all-2g.20gb" })},
		"a MIG layout of a user": {
			spec: mig, change: both(settled, capable, withLabel(labels.MIGConfig, "all-2g.20gb")),
		},
		"a MIG layout of an excluded node": {
			spec: mig, change: both(capable, func(f *nodeinfo.Facts) { f.ExcludedByLabel = true }),
		},
		"a MIG layout of another model": {
			spec: mig, change: both(settled, capable, func(f *nodeinfo.Facts) { f.Product = "NVIDIA-A30" }),
		},
		"MIG disabled": {
			spec:   disabled,
			change: both(settled, capable),
		},
		"MIG disabled where there are devices": {
			spec:   disabled,
			change: both(settled, capable), current: map[string]string{"nvidia.com/mig-1g.10gb.count": "7"},
		},
		"MIG disabled where the product is a device": {
			spec:    disabled,
			change:  both(settled, capable),
			current: map[string]string{labels.GPUProduct: "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"},
		},
		"MIG without a manager": {
			spec:   v1.ClusterPolicySpec{MIGManager: &v1.MIGManagerSpec{Enabled: new(false)}},
			change: both(settled, capable, withLabel(labels.MIGConfig, "all-2g.20gb")),
		},
		"MIG of a vGPU guest": {change: both(capable, withLabel(labels.MIGConfig, "all-2g.20gb"),
			func(f *nodeinfo.Facts) { f.VGPUGuest = true })},
		"paused by MIG, which has ended": {spec: mig, change: both(settled, capable), current: map[string]string{
			labels.MIGConfigState: labels.MIGStateFailed, deploy + "device-plugin": labels.DeployPausedForMIG,
		}},
		"paused by MIG": {spec: mig, change: both(settled, capable), current: map[string]string{
			labels.MIGConfigState: labels.MIGStatePending, deploy + "device-plugin": labels.DeployPausedForMIG,
		}},
		"paused by MIG for too long": {
			spec: mig, change: both(settled, capable, func(f *nodeinfo.Facts) { f.MIGOverdue = true }),
			current: map[string]string{
				labels.MIGConfigState: labels.MIGStatePending, deploy + "device-plugin": labels.DeployPausedForMIG,
			},
		},

		"labels of others": {current: map[string]string{
			labels.Cleanup: "x", deploy + "client": "true", deploy + "unknown": "true", deploy + "mig-manager": "true",
			deploy + "vgpu-manager": "false", labels.GPUPresent: "false", labels.NodePool: "gone", labels.DriverOwner: "gone",
		}},
		"a plugin configuration": {
			spec:   v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "c"}}},
			in:     configured,
			change: withLabel(labels.DevicePluginConfig, "b"),
		},
		"a plugin configuration that does not exist": {
			spec:   v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{Config: &v1.DevicePluginConfigSpec{Name: "c"}}},
			in:     configured,
			change: withLabel(labels.DevicePluginConfig, "x"),
		},
		"a plugin configuration, and no plugin": {
			spec: v1.ClusterPolicySpec{DevicePlugin: &v1.DevicePluginSpec{
				Enabled: new(false), Config: &v1.DevicePluginConfigSpec{Name: "c"},
			}},
			in: configured,
		},
	}
}

// The golden file shows what is planned for a node, and the labels that it gets: all of it for one that is new and one
// with the stack, and of each other case what differs from one of these. UPDATE_GOLDEN=1 writes it.
func TestNodeGoldens(t *testing.T) {
	all, err := operands.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	cases := plannedNodes()
	described := func(name string) (lines []string, base string) {
		test := cases[name]
		in := operand.Input{Spec: effective.Of(test.spec), Namespace: "n", OperatorImage: "example.com/operator:1"}
		if test.in != nil {
			test.in(&in)
		}
		in.Contents = all.Assume(in, in.Contents)
		facts := ubuntu("a")
		if test.change != nil {
			test.change(&facts)
		}
		base = "new"
		if facts.WasGPU {
			base = "installed"
		}
		lines = strings.Split(describeNode(plan.Decide(all, in), all, facts, test.current), "\n")
		return lines[:len(lines)-1], base
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		lines, like := described(name)
		if name == like {
			text.WriteString("== " + name + "\n" + strings.Join(lines, "\n") + "\n")
			continue
		}
		text.WriteString("== " + name + ", not like " + like + "\n")
		base, _ := described(like)
		for _, line := range base {
			if !slices.Contains(lines, line) {
				text.WriteString("-" + line + "\n")
			}
		}
		for _, line := range lines {
			if !slices.Contains(base, line) {
				text.WriteString("+" + line + "\n")
			}
		}
	}
	golden.Compare(t, "testdata/nodes.golden", text.String())
}

// description collects lines.
type description struct{ strings.Builder }

func (d *description) line(format string, args ...any) { fmt.Fprintf(d, "  "+format+"\n", args...) }

// describeNode describes all that is planned for a node.
func describeNode(d *plan.Decisions, all operand.Catalogue, facts nodeinfo.Facts, changes map[string]string) string {
	var text description
	node := d.ForNode(facts)
	text.fields(node)
	for _, onNode := range slices.Concat(node.Essential, node.Auxiliary) {
		text.line("%s %s: %d %s %s", onNode.Stage, onNode.Operand, onNode.Expectation,
			strings.TrimSpace(onNode.Reason+" "+onNode.Message), onNode.Injector)
	}
	driver, applies := d.Driver(&node)
	text.line("driver %s: %t, moves %t; pool version %q", driver.Operand, applies, node.Moves(), node.Spec.Driver.Version)
	text.labels(d, all, facts, currentLabels(facts, changes))
	text.plan(d, facts)
	return text.String()
}

// fields describes the fields of the node's plan that are set, but for those that have lines of their own.
func (d *description) fields(node plan.NodePlan) {
	fields := reflect.ValueOf(node)
	for i := range fields.NumField() {
		if name := fields.Type().Field(i).Name; name != "Facts" && name != "Spec" && name != "Essential" &&
			name != "Auxiliary" && !fields.Field(i).IsZero() {
			d.line("%s: %+v", name, fields.Field(i).Interface())
		}
	}
}

// currentLabels returns the labels of a node with the facts and the changes; an empty value removes a label.
func currentLabels(facts nodeinfo.Facts, changes map[string]string) map[string]string {
	current := map[string]string{
		labels.GPUPresent: labels.True, labels.Pool: facts.Pool, labels.Layout: facts.Layout,
	}
	maps.Copy(current, facts.Labels)
	for name, value := range facts.Deploy {
		current[deploy+name] = value
	}
	maps.Copy(current, changes)
	maps.DeleteFunc(current, func(key, value string) bool {
		_, changed := changes[key]
		return value == "" && (changed || key == labels.Pool || key == labels.Layout)
	})
	return current
}

// labels describes which labels the node gets, loses and needs.
func (d *description) labels(
	decisions *plan.Decisions, all operand.Catalogue, facts nodeinfo.Facts, current map[string]string,
) {
	layout, disturbs := decisions.FirstLayout(facts, current)
	d.line("first layout %q, disturbs %t", layout, disturbs)
	for _, ready := range []plan.ReadyPods{{}, {Driver: true}, {Driver: true, Injector: true}, {Unused: true}} {
		for _, change := range labelTexts(decisions.NodeLabels(facts, current, ready)) {
			d.line("label, driver %t, toolkit %t, unused %t: %s", ready.Driver, ready.Injector, ready.Unused, change)
		}
	}
	for _, present := range []string{"", labels.False, labels.True} {
		for _, change := range labelTexts(plan.ReleasedLabels(all, current, present)) {
			d.line("released as %q: %s", present, change)
		}
	}
	for i := range all {
		if keys := plan.SelectingLabels(&all[i], current); len(keys) > 0 {
			d.line("%s is selected by %v", all[i].Name, keys)
		}
	}
}

// plan describes the steps of a cluster with the node alone.
func (d *description) plan(decisions *plan.Decisions, facts nodeinfo.Facts) {
	p := plan.Compute(decisions, nil, []nodeinfo.Facts{facts})
	for _, note := range p.Doubtful() {
		d.line("doubtful: %s", note)
	}
	for _, refused := range decisions.RefusedDrivers() {
		d.line("refused: %s %+v; %+v", refused.Name, refused.Decision, decisions.RefusedDriver(refused.Name))
	}
	for _, step := range p.Steps {
		if step.Message != "" && step.Action != plan.Apply || step.KeepUnrendered {
			d.line("%s %s %s %s: %s %t", step.Operand.Name, step.Action, step.State, step.Reason, step.Message,
				step.KeepUnrendered)
		}
		for _, instance := range step.Instances {
			if instance.NodePool != "" || instance.Pool != "" {
				d.line("%s instance %q in %q on %q", step.Operand.Name, instance.Suffix, instance.NodePool, instance.Pool)
			}
		}
	}
}

// labelTexts returns changes of labels, sorted.
func labelTexts(changes map[string]*string) []string {
	var found []string
	for key, value := range changes {
		if value == nil {
			found = append(found, "without "+key)
			continue
		}
		found = append(found, key+"="+*value)
	}
	slices.Sort(found)
	return found
}
