package integration

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/nodeinfo"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/stack/plan"
	"github.com/clusterpolicy/gpu-operator/internal/stack/render"
	"github.com/clusterpolicy/gpu-operator/test/chance"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/specgen"
)

const (
	renderedSpecs = 400
	// sampledRenderings is how many specs the short tier renders.
	sampledRenderings = 25
)

// TestRenderedDaemonSetsAreAccepted: of random specs with random parts of pods, what the operator does not refuse is
// accepted by the API server, so that no operand fails only when its DaemonSet is applied.
func TestRenderedDaemonSetsAreAccepted(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	live := bareClient(t, cluster.Newest)
	catalogue, err := operands.Catalogue()
	g.Expect(err).NotTo(HaveOccurred())
	fields, err := specgen.Fields()
	g.Expect(err).NotTo(HaveOccurred())
	specs := sampledRenderings
	if cluster.FullCampaigns() {
		specs = renderedSpecs
	}
	accepted, refused := 0, 0
	first := uint64(chance.Of(t, t.Name()).Uint32())
	for seed := first; seed < first+uint64(specs); seed++ {
		dice := rand.New(rand.NewPCG(seed, 5))
		text, err := json.Marshal(specgen.Random(dice, fields))
		g.Expect(err).NotTo(HaveOccurred())
		spec := v1.ClusterPolicySpec{}
		g.Expect(json.Unmarshal(text, &spec)).To(Succeed())
		specgen.EnableAll(&spec)
		addParts(dice, &spec)
		p := planOf(catalogue, spec)
		for _, step := range p.Steps {
			if step.State == v1.OperandInvalid {
				refused++
			}
			if step.Action != plan.Apply {
				continue
			}
			objects, err := render.Step(p, step, render.Owner{Name: "cluster-policy", UID: "1"}, nil)
			if err != nil {
				refused++
				continue
			}
			for _, object := range objects {
				ds, isDaemonSet := object.(*appsv1.DaemonSet)
				if !isDaemonSet {
					continue
				}
				if err := live.Create(t.Context(), ds, client.DryRunAll); err != nil {
					t.Errorf("seed %d, %s: the API server refuses what the operator applies: %v", seed, ds.Name, err)
				}
				accepted++
			}
		}
	}
	t.Logf("DaemonSets that the API server accepts: %d of %d specs, in which %d operands are refused", accepted, specs,
		refused)
	g.Expect(min(accepted, refused)).To(BeNumerically(">", specs))
}

// addParts adds random parts of pods to the spec: half of the specs have some for all operands, each some for single
// ones.
func addParts(dice *rand.Rand, spec *v1.ClusterPolicySpec) {
	all, one := randomParts(dice), randomParts(dice)
	if dice.IntN(2) == 0 {
		all.UpdateStrategy, all.RollingUpdate = "", nil
		spec.DaemonSets = &all.DaemonSetsSpec
	}
	spec.DCGMExporter.ContainerSpec = one.Container
	spec.GFD.Tolerations, spec.GFD.Labels = one.Tolerations, one.Labels
	spec.DCGM.PriorityClassName, spec.DCGM.Annotations = one.PriorityClassName, one.Annotations
	spec.Driver.StartupProbe, spec.Driver.ReadinessProbe = one.Probes.StartupProbe, one.Probes.ReadinessProbe
	spec.HostPaths = randomPaths(dice)
	spec.Toolkit.InstallDir = randomPath(dice)
}

func randomPaths(dice *rand.Rand) *v1.HostPathsSpec {
	return &v1.HostPathsSpec{DriverInstallDir: randomPath(dice), KubeletRootDir: randomPath(dice)}
}

// randomPath returns the default, or a path that a container may have for something else.
func randomPath(dice *rand.Rand) string {
	if dice.IntN(2) == 0 {
		return ""
	}
	return one(dice, []string{
		"/run/nvidia", "/run/nvidia/validations", "/run/nvidia/driver", "/sys", "/dev", "/host", "/etc", "/usr/local/nvidia",
		"/var/lib/kubelet", "/run/nvidia/mps", "/etc/kubernetes", "/driver-root", "/opt/a:b", "/opt/nvidia/",
	})
}

// planOf plans a spec for a cluster that needs every operand, and has what the spec refers to.
func planOf(catalogue operand.Catalogue, spec v1.ClusterPolicySpec) plan.Plan {
	in := operand.Input{
		Spec: effective.Of(spec), Namespace: corev1.NamespaceDefault, OperatorImage: "registry.example.com/gpu-operator:v1",
	}
	in.Contents = catalogue.Assume(in, nil)
	return plan.Compute(plan.Decide(catalogue, in), in.Optional, []nodeinfo.Facts{{
		Name: "a", HasGPU: true, HasDiscoveryLabels: true, Workload: nodeinfo.WorkloadContainer,
		Runtime: nodeinfo.RuntimeContainerd, RuntimeVersion: "2.1.4", OSID: "ubuntu", OSVersion: "24.04",
		Kernel: "6.8.0-60-generic", Architecture: "amd64", MIGCapable: "true", MPSCapable: "true",
		Labels: map[string]string{"example.com/pool": "own", "team": "hpc"},
	}})
}
