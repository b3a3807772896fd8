package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
)

const (
	migManager = deploy + "mig-manager"
	migConfig  = "nvidia.com/mig.config"
)

// A MIG manager that is paused or refused for now is not one that a node does not have.
func TestPartitionerThatIsOff(t *testing.T) {
	spec := v1.ClusterPolicySpec{MIGManager: &v1.MIGManagerSpec{Config: &v1.MIGManagerConfigSpec{}}}
	for name, test := range map[string]struct {
		label string
		runs  bool
		off   bool
	}{
		"it runs":             {label: "true", runs: true},
		"no label yet":        {runs: true},
		"paused":              {label: "paused-for-driver-upgrade", off: true},
		"a user keeps it off": {label: "false"},
	} {
		t.Run(name, func(t *testing.T) {
			facts := changed(ubuntu("a"), func(f *nodeinfo.Facts) {
				f.MIGCapable, f.Deploy = "true", map[string]string{"mig-manager": test.label}
			})
			got := decide(t, spec).ForNode(facts)
			if (got.Partitioner != "") != test.runs || got.PartitionerOff != test.off {
				t.Errorf("got %q and %t", got.Partitioner, got.PartitionerOff)
			}
		})
	}
}

// migLabels returns the changes of the MIG manager's two labels on a node with these labels.
func migLabels(
	t *testing.T,
	spec v1.ClusterPolicySpec,
	facts nodeinfo.Facts,
	current map[string]string,
) map[string]*string {
	t.Helper()
	if value, there := current[migManager]; there {
		facts.Deploy = map[string]string{"mig-manager": value}
	}
	changes := decide(t, spec).NodeLabels(facts, current, plan.ReadyPods{Injector: true})
	mine := map[string]*string{}
	for _, key := range []string{migManager, migConfig} {
		if value, there := changes[key]; there {
			mine[key] = value
		}
	}
	return mine
}

func TestLabelsOfTheMIGManager(t *testing.T) {
	defaulted := v1.ClusterPolicySpec{MIGManager: &v1.MIGManagerSpec{Config: &v1.MIGManagerConfigSpec{}}}
	capable := changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.MIGCapable = "true" })
	incapable := changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.MIGCapable = "false" })
	product := func(name string) nodeinfo.Facts {
		return changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.Product = name })
	}
	both := map[string]*string{migManager: set("true"), migConfig: set("all-disabled")}
	nothing := map[string]*string{}
	tests := map[string]struct {
		spec    v1.ClusterPolicySpec
		facts   nodeinfo.Facts
		current map[string]string
		want    map[string]*string
	}{
		"a capable node gets operand and layout": {spec: defaulted, facts: capable, want: both},
		"the layout is the user's": {
			spec: defaulted, facts: capable, current: map[string]string{migConfig: "all-1g.10gb"},
			want: map[string]*string{migManager: set("true")},
		},
		"an empty layout counts as absent": {
			spec: defaulted, facts: capable, current: map[string]string{migConfig: "", migManager: "true"},
			want: map[string]*string{migConfig: set("all-disabled")},
		},
		"without the config block no layout is written": {facts: capable, want: map[string]*string{migManager: set("true")}},
		"nor with an empty default": {
			spec:  v1.ClusterPolicySpec{MIGManager: &v1.MIGManagerSpec{Config: &v1.MIGManagerConfigSpec{Default: new("")}}},
			facts: capable, want: map[string]*string{migManager: set("true")},
		},
		"nor if the MIG manager is disabled; its deploy label has no effect": {
			spec:  v1.ClusterPolicySpec{MIGManager: &v1.MIGManagerSpec{Enabled: new(false), Config: &v1.MIGManagerConfigSpec{}}},
			facts: capable, want: map[string]*string{migManager: set("true")},
		},
		"an incapable node gets neither":         {spec: defaulted, facts: incapable, want: nothing},
		"a node without GFD labels gets neither": {spec: defaulted, facts: ubuntu("a"), want: nothing},
		"without GFD's capability label, the product decides": {
			spec:  defaulted,
			facts: product("NVIDIA-H100-80GB-HBM3"),
			want:  both,
		},
		"another product is not capable": {spec: defaulted, facts: product("Tesla-T4"), want: nothing},
		"GFD's label is missing for a while": {
			spec:    defaulted,
			facts:   ubuntu("a"),
			current: map[string]string{migManager: "true", migConfig: "all-1g.10gb"},
			want:    nothing,
		},
		"GFD reports that the GPUs are not capable": {
			spec: defaulted, facts: incapable, current: map[string]string{migManager: "true", migConfig: "all-1g.10gb"},
			want: map[string]*string{migManager: removed},
		},
		"a host with the vGPU manager": {
			spec: defaulted, facts: changed(capable, func(f *nodeinfo.Facts) { f.VGPUGuest = true }),
			current: map[string]string{migManager: "true"}, want: map[string]*string{migManager: removed},
		},
		"values of a user stay": {
			spec:    defaulted,
			facts:   capable,
			current: map[string]string{migManager: "false", migConfig: "all-1g.10gb"},
			want:    nothing,
		},
		"an excluded node gets neither": {
			spec: defaulted, facts: changed(capable, func(f *nodeinfo.Facts) { f.ExcludedByLabel = true }), want: nothing,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, migLabels(t, test.spec, test.facts, test.current)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// While the MIG manager changes the MIG layout, the operands that use GPUs stay paused, whatever the facts are.
func TestPauseForMIGChangeStays(t *testing.T) {
	const paused = "paused-for-mig-change"
	current := labelled(map[string]*string{migManager: set("true")})
	for _, name := range []string{"device-plugin", "gpu-feature-discovery", "dcgm-exporter", "dcgm", "nvsm", "client"} {
		current[deploy+name] = paused
	}
	for name, change := range map[string]func(*nodeinfo.Facts){
		"while GFD reports that the GPUs are capable": func(f *nodeinfo.Facts) { f.MIGCapable = "true" },
		"while GFD is paused and reports nothing":     func(*nodeinfo.Facts) {},
		"when GFD reports that they are not capable":  func(f *nodeinfo.Facts) { f.MIGCapable = "false" },
		"on an excluded node":                         func(f *nodeinfo.Facts) { f.ExcludedByLabel = true },
	} {
		t.Run(name, func(t *testing.T) {
			facts := changed(ubuntu("a"), change)
			facts.Deploy = map[string]string{"mig-manager": "true"}
			after := after(
				current,
				decide(t, v1.ClusterPolicySpec{}).NodeLabels(facts, current, plan.ReadyPods{Driver: true, Injector: true}),
			)
			for key, value := range current {
				if value == paused && after[key] != paused {
					t.Errorf("%s became %q", key, after[key])
				}
			}
		})
	}
}

// Operands that the MIG manager has left paused are started again once its change has ended, however it ended, or takes
// too long. Pauses of others stay.
func TestOperandsAreResumedAfterAMIGChange(t *testing.T) {
	const plugin, exporter, driver = deploy + "device-plugin", deploy + "dcgm-exporter", deploy + "driver"
	current := labelled(map[string]*string{
		plugin: set("paused-for-mig-change"), exporter: set("paused-for-driver-upgrade"), driver: set("pre-installed"),
		deploy + "client": set("paused-for-mig-change"),
	})
	for state, ended := range map[string]bool{
		"pending": false, "rebooting": false, "": false, "failed": true, "success": true,
	} {
		for _, overdue := range []bool{false, true} {
			facts := changed(ubuntu("a"), func(f *nodeinfo.Facts) { f.MIGOverdue = overdue })
			current["nvidia.com/mig.config.state"] = state
			after := after(current, decide(t, v1.ClusterPolicySpec{}).NodeLabels(facts, current,
				plan.ReadyPods{Driver: true, Injector: true}))
			want := map[bool]string{true: "true", false: "paused-for-mig-change"}[ended || overdue]
			if after[plugin] != want || after[deploy+"client"] != want {
				t.Errorf("state %q, overdue %t: %s, %s", state, overdue, after[plugin], after[deploy+"client"])
			}
			if after[exporter] != "paused-for-driver-upgrade" || after[driver] != "pre-installed" {
				t.Errorf("state %q: %s, %s", state, after[exporter], after[driver])
			}
		}
	}
}
