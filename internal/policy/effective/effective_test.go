package effective_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

func decode(t *testing.T, text string) v1.ClusterPolicySpec {
	t.Helper()
	spec := v1.ClusterPolicySpec{}
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return spec
}

// The file is written by hand, from the comments in the API: no tool generates it. A block that is not in it has the
// defaults of an operand that no function has a table for.
func TestDefaults(t *testing.T) {
	text, err := os.ReadFile("testdata/defaults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := decode(t, string(text))
	blocks := reflect.ValueOf(&want).Elem()
	for i := range blocks.NumField() {
		if block := blocks.Field(i); isPlaced(block.Type()) && block.IsNil() {
			common := fmt.Sprintf(`{%s: {enabled: false, hostNetwork: false, imagePullPolicy: IfNotPresent}}`,
				strings.TrimSuffix(blocks.Type().Field(i).Tag.Get("json"), ",omitempty"))
			block.Set(reflect.ValueOf(decode(t, common)).Field(i))
		}
	}
	if diff := cmp.Diff(want, effective.Of(v1.ClusterPolicySpec{}).ClusterPolicySpec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// isPlaced reports whether a block of this type is an operand's, as it has a placement.
func isPlaced(block reflect.Type) bool {
	if block.Kind() != reflect.Pointer || block.Elem().Kind() != reflect.Struct {
		return false
	}
	_, placed := block.Elem().FieldByName("PlacementSpec")
	return placed
}

func TestWhatIsSet(t *testing.T) {
	tests := map[string]struct {
		spec string
		want func(Gomega, effective.Spec)
	}{
		"a block whose presence has a meaning gets its own defaults": {
			`{migManager: {config: {}}}`,
			func(g Gomega, s effective.Spec) {
				g.Expect(*s.MIGManager.Config).
					To(Equal(v1.MIGManagerConfigSpec{Name: "default-mig-parted-config", Default: new("all-disabled"), OnBusy: "hold"}))
			},
		},
		"an empty layout is a choice": {`{migManager: {config: {default: ""}}}`, func(g Gomega, s effective.Spec) {
			g.Expect(s.MIGManager.Config.Default).To(HaveValue(BeEmpty()))
		}},
		"parts of the start-up probe": {`{driver: {startupProbe: {failureThreshold: 7}}}`, func(g Gomega, s effective.Spec) {
			g.Expect(*s.Driver.StartupProbe).To(Equal(v1.ProbeSpec{
				InitialDelaySeconds: 60, PeriodSeconds: 10, TimeoutSeconds: 60, SuccessThreshold: 1, FailureThreshold: 7,
			}))
		}},
		"no start-up probe": {`{driver: {startupProbe: {timeoutSeconds: 5}}}`, func(g Gomega, s effective.Spec) {
			g.Expect(*s.Driver.StartupProbe).To(Equal(v1.ProbeSpec{
				PeriodSeconds: 1, TimeoutSeconds: 5, SuccessThreshold: 1, FailureThreshold: 315,
			}))
		}},
		"the start-up probe of NVIDIA's chart": {
			`{driver: {startupProbe: {initialDelaySeconds: 60, periodSeconds: 10, timeoutSeconds: 60, failureThreshold: 120}}}`,
			func(g Gomega, s effective.Spec) {
				g.Expect(*s.Driver.StartupProbe).To(Equal(effective.DriverStartupProbe(60)))
			},
		},
		"variables of the driver": {
			`{driver: {env: [{name: OPEN_KERNEL_MODULES_ENABLED, value: "true"}, {name: USE_HOST_MOFED, value: "true"}]}}`,
			func(g Gomega, s effective.Spec) {
				g.Expect(s.Driver.KernelModuleType).To(Equal(v1.KernelModuleOpen))
				g.Expect([]*bool{s.Driver.RDMA.Enabled, s.Driver.RDMA.UseHostMOFED}).To(Equal([]*bool{new(false), new(true)}))
			},
		},
		"variables of the driver that turn off": {
			`{driver: {env: [{name: OPEN_KERNEL_MODULES_ENABLED, value: "false"}, {name: USE_HOST_MOFED, value: "x"}]}}`,
			func(g Gomega, s effective.Spec) {
				g.Expect(s.Driver.KernelModuleType).To(Equal(v1.KernelModuleAuto))
				g.Expect(s.Driver.RDMA.UseHostMOFED).To(HaveValue(BeFalse()))
			},
		},
		"variables of a node pool": {
			`{nodePools: [{name: a, driver: {env: [{name: GPU_DIRECT_RDMA_ENABLED, value: "true"}]}}]}`,
			func(g Gomega, s effective.Spec) {
				g.Expect(s.Driver.RDMA.Enabled).To(HaveValue(BeFalse()))
				g.Expect(s.ForNodePool(s.NodePools[0]).Driver.RDMA.Enabled).To(HaveValue(BeTrue()))
			},
		},
		"parts of another probe are not filled in": {
			`{driver: {livenessProbe: {failureThreshold: 7}}}`,
			func(g Gomega, s effective.Spec) {
				g.Expect(*s.Driver.LivenessProbe).To(Equal(v1.ProbeSpec{FailureThreshold: 7}))
			},
		},
		"an empty traffic policy is none": {
			`{dcgmExporter: {service: {internalTrafficPolicy: ""}}}`,
			func(g Gomega, s effective.Spec) {
				g.Expect(s.DCGMExporter.Service.InternalTrafficPolicy).
					To(HaveValue(Equal(corev1.ServiceInternalTrafficPolicyCluster)))
			},
		},
		"the operand chooses the network of the exporter": {
			`{dcgmExporter: {hostNetwork: false}}`,
			func(g Gomega, s effective.Spec) {
				g.Expect(s.DCGMExporter.HostNetwork).To(HaveValue(BeFalse()))
				g.Expect(effective.Of(v1.ClusterPolicySpec{}).DCGMExporter.HostNetwork).To(BeNil())
			},
		},
		"an empty list of tolerations is none": {
			`{daemonsets: {tolerations: []}, nodeDiscovery: {tolerations: []}}`,
			func(g Gomega, s effective.Spec) {
				g.Expect(s.DaemonSets.Tolerations).To(HaveLen(1))
				g.Expect(s.NodeDiscovery.Tolerations).To(HaveLen(1))
			},
		},
		"tolerations replace the default": {
			`{daemonsets: {tolerations: [{key: a}, {key: b}]}, nodeDiscovery: {tolerations: [{key: c}]}}`,
			func(g Gomega, s effective.Spec) {
				g.Expect(s.DaemonSets.Tolerations).To(Equal([]corev1.Toleration{{Key: "a"}, {Key: "b"}}))
				g.Expect(s.NodeDiscovery.Tolerations).To(Equal([]corev1.Toleration{{Key: "c"}}))
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.want(NewWithT(t), effective.Of(decode(t, test.spec)))
		})
	}
}

func TestMaxUnavailable(t *testing.T) {
	tests := map[string]struct {
		spec      string
		discovers bool
		want      intstr.IntOrString
	}{
		"the default":            {`{}`, false, intstr.FromInt32(1)},
		"that of node discovery": {`{}`, true, intstr.FromString("10%")},
		"a number":               {`{daemonsets: {rollingUpdate: {maxUnavailable: 3}}}`, true, intstr.FromInt32(3)},
		"a number as text":       {`{daemonsets: {rollingUpdate: {maxUnavailable: "3"}}}`, false, intstr.FromInt32(3)},
		"a percentage":           {`{daemonsets: {rollingUpdate: {maxUnavailable: 20%}}}`, false, intstr.FromString("20%")},
		"an empty block":         {`{daemonsets: {rollingUpdate: {}}}`, false, intstr.FromInt32(1)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(effective.Of(decode(t, test.spec)).MaxUnavailable(test.discovers)).To(Equal(test.want))
		})
	}
}

// A number in quotes is the number, and an empty one means the default, wherever a number or a percentage is admitted.
func TestQuotedNumbers(t *testing.T) {
	for given, wanted := range map[string]string{`"2"`: `2`, `"50%"`: `50%`, `""`: `null`} {
		spec := func(value string) effective.Spec {
			return effective.Of(decode(t, fmt.Sprintf(`{
				health: {minUsable: %[1]s, actions: {maxNodes: %[1]s}}, daemonsets: {rollingUpdate: {maxUnavailable: %[1]s}},
				driver: {upgradePolicy: {maxUnavailable: %[1]s}},
				nodePools: [{name: a, driver: {upgradePolicy: {maxUnavailable: %[1]s}}}],
			}`, value)))
		}
		if diff := cmp.Diff(spec(wanted), spec(given)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", given, diff)
		}
	}
	g := NewWithT(t)
	s := effective.Of(decode(t, `{health: {minUsable: "6", actions: {maxNodes: "2"}}}`))
	g.Expect(*s.Health.MinUsable).To(Equal(intstr.FromInt32(6)))
	g.Expect(*s.Health.Actions.MaxNodes).To(Equal(intstr.FromInt32(2)))
	s = effective.Of(decode(t, `{health: {minUsable: "", actions: {maxNodes: ""}}}`))
	g.Expect(*s.Health.MinUsable).To(Equal(intstr.FromString("100%")))
	g.Expect(*s.Health.Actions.MaxNodes).To(Equal(intstr.FromInt32(1)))
	pool := v1.NodePoolSpec{Driver: &v1.NodePoolDriverSpec{UpgradePolicy: &v1.NodePoolUpgradePolicySpec{
		MaxUnavailable: new(intstr.FromString("3")),
	}}}
	own := s.ForNodePool(pool)
	g.Expect(*own.Driver.UpgradePolicy.MaxUnavailable).To(Equal(intstr.FromInt32(3)))
	pool.Driver.UpgradePolicy.MaxUnavailable = new(intstr.FromString(""))
	own = s.ForNodePool(pool)
	g.Expect(*own.Driver.UpgradePolicy.MaxUnavailable).To(Equal(intstr.FromString("25%")))
}

func TestForEach(t *testing.T) {
	g := NewWithT(t)
	spec := decode(t, `{
		driver: {env: [{name: A, value: b}], upgradePolicy: {maxUnavailable: "25%"}}, toolkit: {env: []},
		health: {minUsable: "", actions: {maxNodes: many}}, daemonsets: {rollingUpdate: {maxUnavailable: "99999999999"}},
	}`)
	found := []string{}
	effective.ForEachEnv(&spec, func(field string, env *[]v1.EnvVar) { found = append(found, field+" "+(*env)[0].Name) })
	effective.ForEachMisread(&spec, func(field, given, taken string) {
		found = append(found, fmt.Sprintf("%s %s %q", field, given, taken))
	})
	g.Expect(found).To(ConsistOf("spec.driver.env A", `spec.health.actions.maxNodes many ""`,
		`spec.daemonsets.rollingUpdate.maxUnavailable 99999999999 "2147483647"`))
	g.Expect([]bool{effective.Shares(1), effective.Shares(2)}).To(Equal([]bool{false, true}))
}

// A text that an earlier definition has admitted means what it says, or the default, and never 0: a large number or
// percentage means all, and what is neither is absent. It is reported wherever it is written.
func TestTextsThatAreNoNumbers(t *testing.T) {
	const field = `{
		health: {minUsable: %[1]q, actions: {maxNodes: %[1]q}}, daemonsets: {rollingUpdate: {maxUnavailable: %[1]q}},
		driver: {upgradePolicy: {maxUnavailable: %[1]q}},
		nodePools: [{name: a, driver: {upgradePolicy: {maxUnavailable: %[1]q}}}],
	}`
	const all = math.MaxInt32
	for text, want := range map[string]map[string]int{
		"2147483647":            {"": all},
		"2147483648":            {"": all},
		"99999999999":           {"": all},
		"99999999999999999999":  {"": all},
		"000000000002":          {"": 2},
		"1000%":                 {"": 8},
		"99999999999999%":       {"": 8},
		"99999999999999999999%": {"": 8},
		"many":                  {"": 2, "minUsable": 8, "rollingUpdate": 1, "maxNodes": 1},
		"%":                     {"": 2, "minUsable": 8, "rollingUpdate": 1, "maxNodes": 1},
		"1.5":                   {"": 2, "minUsable": 8, "rollingUpdate": 1, "maxNodes": 1},
		"0":                     {"": 0, "rollingUpdate": 1},
		"0%":                    {"": 0, "rollingUpdate": 1},
		"-99999999999":          {"": math.MinInt32, "rollingUpdate": 1},
	} {
		t.Run(text, func(t *testing.T) {
			s := effective.Of(decode(t, fmt.Sprintf(field, text)))
			pool := s.ForNodePool(s.NodePools[0])
			for name, got := range map[string]intstr.IntOrString{
				"rollingUpdate": s.MaxUnavailable(false), "minUsable": *s.Health.MinUsable,
				"maxNodes": *s.Health.Actions.MaxNodes, "upgradePolicy": *s.Driver.UpgradePolicy.MaxUnavailable,
				"nodePools": *pool.Driver.UpgradePolicy.MaxUnavailable,
			} {
				wanted, own := want[name]
				if !own {
					wanted = want[""]
				}
				if of8, err := intstr.GetScaledValueFromIntOrPercent(&got, 8, true); err != nil || of8 != wanted {
					t.Errorf("%s: %v is %d of 8, %v, want %d", name, got, of8, err, wanted)
				}
			}
		})
	}
}

// For every spec: defaults are only added, in a copy, and adding them again changes nothing. Two specs share no
// block that one of them could change.
func TestDefaultsOfRandomSpecs(t *testing.T) {
	fields, err := specgen.Fields()
	if err != nil {
		t.Fatal(err)
	}
	for _, seed := range chance.Numbers(t, t.Name(), 300, 75) {
		random := rand.New(rand.NewPCG(uint64(seed), 7)) //nolint:gosec // A repeatable test needs no secret.
		value := specgen.Random(random, fields)
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		raw := decode(t, string(text))
		before := raw.DeepCopy()
		spec := effective.Of(raw)
		if diff := cmp.Diff(*before, raw); diff != "" {
			t.Errorf("seed %d: the policy's spec is changed, -want +got:\n%s", seed, diff)
		}
		if diff := cmp.Diff(spec, effective.Of(spec.ClusterPolicySpec)); diff != "" {
			t.Errorf("seed %d: not the same a second time, -want +got:\n%s", seed, diff)
		}
		given, all := tree(t, unquoted(raw)), tree(t, spec.ClusterPolicySpec)
		if diff := cmp.Diff(all, specgen.Merge(all, given)); diff != "" {
			t.Errorf("seed %d: what is set is changed, -want +got:\n%s", seed, diff)
		}
		*spec.Driver.Enabled, spec.DaemonSets.Tolerations[0].Key = !*spec.Driver.Enabled, "changed"
		if diff := cmp.Diff(*before, raw); diff != "" {
			t.Errorf("seed %d: the policy shares what is in its spec, -want +got:\n%s", seed, diff)
		}
	}
}

// unquoted returns the spec with the number that generated specs may have in quotes as a number.
func unquoted(spec v1.ClusterPolicySpec) v1.ClusterPolicySpec {
	own := spec.DeepCopy()
	if own.DaemonSets == nil || own.DaemonSets.RollingUpdate == nil {
		return *own
	}
	if value := own.DaemonSets.RollingUpdate.MaxUnavailable; value != nil {
		*value = intstr.Parse(value.String())
	}
	return *own
}

// tree returns a spec as a tree of JSON values, without absent fields.
func tree(t *testing.T, spec any) map[string]any {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	result := map[string]any{}
	if err := json.Unmarshal(text, &result); err != nil {
		t.Fatal(err)
	}
	return result
}

// By default an attempt of the driver's start-up probe takes longer than the period, and the driver has as much
// time as with NVIDIA's; times set in the spec apply unchanged.
func TestDriverStartupTime(t *testing.T) {
	tests := map[string]struct {
		probe  string
		within time.Duration
		// total is that of all attempts, to a period.
		total time.Duration
	}{
		"default":         {probe: `{}`, within: 9 * time.Second, total: 21 * time.Minute},
		"a short timeout": {probe: `{timeoutSeconds: 5}`, within: 4 * time.Second, total: 21 * time.Minute},
		"the shortest":    {probe: `{timeoutSeconds: 1}`, total: 21 * time.Minute},
		"NVIDIA's": {
			probe:  `{initialDelaySeconds: 60, periodSeconds: 10, failureThreshold: 120}`,
			within: 9 * time.Second,
			total:  21 * time.Minute,
		},
		"a threshold alone": {probe: `{failureThreshold: 60}`, within: 9 * time.Second, total: 11 * time.Minute},
		"all of the user": {
			probe: `{initialDelaySeconds: 1, periodSeconds: 1, failureThreshold: 60}`,
			total: 61 * time.Second,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var spec v1.ClusterPolicySpec
			g.Expect(yaml.Unmarshal([]byte("{driver: {startupProbe: "+test.probe+"}}"), &spec)).To(Succeed())
			probe := *effective.Of(spec).Driver.StartupProbe
			within := effective.DriverProbeWithin(probe)
			g.Expect(within).To(Equal(test.within))
			attempt := max(within, time.Duration(probe.PeriodSeconds)*time.Second)
			total := time.Duration(probe.InitialDelaySeconds)*time.Second + time.Duration(probe.FailureThreshold)*attempt
			g.Expect(total).To(Equal(test.total))
		})
	}
}

func TestEveryStageHasADeadline(t *testing.T) {
	spec := effective.Of(v1.ClusterPolicySpec{})
	for _, stage := range append(v1.Stages(), "") {
		if spec.Deadline(stage) <= 0 {
			t.Errorf("stage %q has no deadline", stage)
		}
	}
}
