package install

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/nvidiadriver"
	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

// usualObject is the NVIDIADriver default without other values.
const usualObject = "{default: true, gds: {enabled: false}, gdrcopy: {enabled: false}, licensingConfig: " +
	"{nlsEnabled: true}, rdma: {enabled: false, useHostMofed: false}, upgradePolicy: {autoUpgrade: true}}"

func TestValuesOfNVIDIADriver(t *testing.T) {
	t.Parallel()
	const enabled = "driver.nvidiaDriverCRD.enabled=true "
	for name, test := range map[string]struct {
		// object is the spec of the NVIDIADriver default; empty for none.
		set, object string
		// uses: the policy uses NVIDIADrivers.
		uses bool
	}{
		"not enabled":       {set: "driver.nvidiaDriverCRD.nodeSelector.a=b"},
		"enabled":           {enabled, usualObject, true},
		"without an object": {enabled + "driver.nvidiaDriverCRD.deployDefaultCR=false", "", true},
		"a type and nodes": {
			enabled + "driver.nvidiaDriverCRD.driverType=vgpu driver.nvidiaDriverCRD.nodeSelector.a=true",
			strings.Replace(usualObject, "default: true", "driverType: vgpu, nodeSelector: {a: 'true'}", 1), true,
		},
		"the nodes of the driver": {
			enabled + "driver.nodeSelector.a=b",
			strings.Replace(usualObject, "default: true", "nodeSelector: {a: b}", 1), true,
		},
		"a version": {
			enabled + "driver.version=595 driver.kernelModuleType=open",
			strings.Replace(usualObject, "default: true", "default: true, version: '595', kernelModuleType: open", 1), true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			text, err := render(t, set(test.set)...)
			g.Expect(err).NotTo(HaveOccurred())
			objects, err := packaged.Decode(text)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(*effective.Of(policyOf(g, objects).Spec).Driver.UseNvidiaDriverCRD).To(Equal(test.uses))
			found := find(objects, "NVIDIADriver", "default")
			if test.object == "" {
				g.Expect(found).To(BeNil())
				return
			}
			want := map[string]any{}
			g.Expect(yaml.Unmarshal([]byte(test.object), &want)).To(Succeed())
			g.Expect(cmp.Diff(want, found.Object["spec"])).To(BeEmpty())
		})
	}
}

// The NVIDIADriver default declares the driver that the same values give a policy without it, whatever they are.
func TestTheDefaultNVIDIADriverHasTheDriverOfThePolicy(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	all, err := specgen.Fields()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	fields := slices.DeleteFunc(all, func(f specgen.Field) bool {
		block := f.Path[0]
		return block != "driver" && block != "gds" && block != "gdrcopy" && block != "daemonsets" ||
			slices.Contains([]string{"enabled", "useNvidiaDriverCRD", "nodeSelector"}, f.Name()) && block == "driver" ||
			slices.Contains(f.Path, "containerResources")
	})
	accepted := 0
	const tries = 25
	first := uint64(chance.Of(t, t.Name()).Uint32())
	for seed := first; seed < first+tries; seed++ {
		g := NewWithT(t)
		values := specgen.Random(rand.New(rand.NewPCG(seed, 4)), fields)
		values = specgen.Merge(values, map[string]any{"driver": map[string]any{
			"nvidiaDriverCRD": map[string]any{"enabled": true},
		}})
		text, err := json.Marshal(values)
		g.Expect(err).NotTo(HaveOccurred())
		path := filepath.Join(t.TempDir(), "values.yaml")
		g.Expect(os.WriteFile(path, text, 0o600)).To(Succeed())
		rendered, err := render(t, "--values", path)
		if err != nil {
			continue // Values that contradict a rule.
		}
		accepted++
		objects, err := packaged.Decode(rendered)
		g.Expect(err).NotTo(HaveOccurred())
		policy, object := policyOf(g, objects), objectOf(g, find(objects, "NVIDIADriver", "default"))
		declared := nvidiadriver.Declared(policy.Spec, []v1alpha1.NVIDIADriver{object})[0]
		want, got := effective.Of(policy.Spec), declared.Spec
		// An NVIDIADriver adds to this toleration, and a policy replaces it.
		gpu := corev1.Toleration{
			Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		}
		if own := &want.Driver.Tolerations; len(*own) == 0 {
			*own = want.DaemonSets.Tolerations
		}
		if !slices.Contains(want.Driver.Tolerations, gpu) {
			want.Driver.Tolerations = append([]corev1.Toleration{gpu}, want.Driver.Tolerations...)
		}
		pods := operand.DriverPodsOf(got, object.Spec.PodSecurityContext)
		g.Expect(cmp.Diff(operand.DriverPodsOf(want, nil), pods, cmpopts.EquateEmpty())).
			To(BeEmpty(), "seed %d: %s", seed, text)
		g.Expect(cmp.Diff(want.Driver.UpgradePolicy, got.Driver.UpgradePolicy, cmpopts.EquateEmpty())).
			To(BeEmpty(), "seed %d: %s", seed, text)
	}
	NewWithT(t).Expect(accepted).To(BeNumerically(">=", tries/2), "values that the chart accepts")
}

// objectOf decodes an NVIDIADriver strictly.
func objectOf(g *WithT, found *unstructured.Unstructured) v1alpha1.NVIDIADriver {
	g.Expect(found).NotTo(BeNil(), "the chart creates an NVIDIADriver")
	text, err := found.MarshalJSON()
	g.Expect(err).NotTo(HaveOccurred())
	object := v1alpha1.NVIDIADriver{}
	g.Expect(yaml.UnmarshalStrict(text, &object)).To(Succeed())
	return object
}
