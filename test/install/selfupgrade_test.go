package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/needs"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// earlier are commits of this project that play its earlier releases, oldest first: the first one with the digest of
// templates that a release keeps, and a later one.
var earlier = []string{
	"cf865d01f450f0e69e94aebf5b4ec231ef870df3",
	"e570f85b4561f806e7998fa3f628afa2a879fb4d",
}

// ourRelease is a release of this project: its files, its manager, and the image that its installers name.
type ourRelease struct {
	dir, chart, binary, version string
}

func (r ourRelease) image() string { return "registry.example.com/gpu/gpu-operator:v" + r.version }

// TestUpgradesOfTheOperator installs an earlier release, upgrades to each later one and to this one, and goes back
// again, by Helm, kubectl and the steps of OLM. The policy is the same, so no operand's pod is replaced.
func TestUpgradesOfTheOperator(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	releases := ourReleases(t)
	for way, install := range map[string]func(*env, ourRelease, bool){
		"Helm": (*env).helmRelease, "kubectl": (*env).kubectlRelease, "OLM": (*env).olmRelease,
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			newEnv(t, 3).upDown(releases, install)
		})
	}
}

// ourReleases returns the earlier releases, and this one as the last.
func ourReleases(t *testing.T) []ourRelease {
	t.Helper()
	g, out := NewWithT(t), t.TempDir()
	var releases []ourRelease
	for i, commit := range earlier {
		found, err := cluster.Earlier(t.Context(), commit, os.Stderr)
		if errors.Is(err, cluster.ErrNoCommit) {
			needs.Unmet(t, needs.History, err)
		}
		g.Expect(err).NotTo(HaveOccurred())
		releases = append(releases, ourRelease{dir: found.Dir, binary: found.Operator, version: fmt.Sprintf("1.%d.0", i)})
	}
	releases = append(releases, ourRelease{
		dir: repo, binary: cluster.ShippedOperator(t), version: fmt.Sprintf("1.%d.0", len(earlier)),
	})
	for i := range releases {
		r := &releases[i]
		r.chart = filepath.Join(out, r.version, "gpu-operator")
		g.Expect(packaged.ReleaseChart(t.Context(), r.dir, r.chart, r.version, r.image())).To(Succeed())
	}
	return releases
}

// upDown installs the releases one after the other, and back to the first.
func (e *env) upDown(releases []ourRelease, install func(*env, ourRelease, bool)) {
	e.t.Helper()
	order := append([]ourRelease{}, releases...)
	for i := len(releases) - 2; i >= 0; i-- {
		order = append(order, releases[i])
	}
	var before map[string]types.UID
	var drivers []string
	for i, r := range order {
		begin := time.Now()
		e.stop()
		e.binary = r.binary
		install(e, r, i == 0)
		e.run(namespace, "OPERATOR_IMAGE="+r.image())
		if i == 0 {
			e.awaitReady()
			before, drivers = e.pods(), e.rolledOut()
			e.Expect(len(before)).To(BeNumerically(">", 3*len(e.daemonSetsOf(namespace))/2), "%v", before)
			continue
		}
		e.hasPassed(int32(i))
		e.Expect(e.rolledOut()).To(ContainElements(drivers))
		for name, uid := range before {
			e.Expect(e.pods()).To(HaveKeyWithValue(name, uid), "release %s replaces no pod", r.version)
		}
		e.t.Logf("from %s to %s: 0 of %d pods replaced, %s", order[i-1].version, r.version, len(before),
			time.Since(begin).Round(100*time.Millisecond))
	}
}

// hasPassed changes a field that no object depends on, and waits until the running operator has reported that.
func (e *env) hasPassed(parallel int32) {
	e.t.Helper()
	e.Expect(e.client.Patch(e.t.Context(), e.policy(), client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
		`{"spec":{"driver":{"upgradePolicy":{"maxParallelUpgrades":%d}}}}`, parallel)))).To(Succeed())
	e.awaitReady()
}

// rolledOut waits until all DaemonSets have been rolled out as they are, and returns their names.
func (e *env) rolledOut() []string {
	e.t.Helper()
	var names []string
	e.Eventually(func() []string {
		var left []string
		names = nil
		for _, ds := range e.daemonSetsOf(namespace) {
			status := &ds.Status
			names = append(names, ds.Name)
			outdated := ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType &&
				status.UpdatedNumberScheduled != status.DesiredNumberScheduled
			if status.ObservedGeneration != ds.Generation || outdated || status.NumberReady != status.DesiredNumberScheduled {
				left = append(left, fmt.Sprintf("%s: %+v", ds.Name, status))
			}
		}
		return left
	}).WithTimeout(time.Minute).WithPolling(200 * time.Millisecond).Should(BeEmpty())
	return names
}

// helmRelease installs or upgrades the chart of a release, whose hook applies the definition.
func (e *env) helmRelease(r ourRelease, first bool) {
	e.t.Helper()
	// No pod of the chart is scheduled: the operator and the hooks run as processes.
	flags := []string{r.chart, "--set", "operator.nodeSelector.pool=none", "--timeout", "60s"}
	if first {
		e.helm(append([]string{"install", release, "--create-namespace"}, flags...)...)
		return
	}
	played := e.playHook("gpu-operator-upgrade-crd")
	e.helm(append([]string{"upgrade", release}, flags...)...)
	e.Expect(played()).To(ContainSubstring("CustomResourceDefinition clusterpolicies.nvidia.com"))
}

// kubectlRelease applies the manifests of a release, and the sample of the first one.
func (e *env) kubectlRelease(r ourRelease, first bool) {
	e.t.Helper()
	e.Expect(cluster.Install(e.t.Context(), e.cluster.Config, filepath.Join(r.dir, "config/default"))).To(Succeed())
	if first {
		text, err := os.ReadFile(filepath.Join(r.dir, "config/samples/clusterpolicy.yaml"))
		e.Expect(err).NotTo(HaveOccurred())
		policy := &v1.ClusterPolicy{}
		e.Expect(yaml.UnmarshalStrict(text, policy)).To(Succeed())
		e.createUpgraded(policy)
	}
}

// olmRelease does what OLM does with the bundle of a release, and creates the example of the first one.
func (e *env) olmRelease(r ourRelease, first bool) {
	e.t.Helper()
	opened, err := packaged.OpenBundle(filepath.Join(r.dir, "bundle"))
	e.Expect(err).NotTo(HaveOccurred())
	objects, err := opened.Objects(namespace)
	e.Expect(err).NotTo(HaveOccurred())
	if first {
		in := &corev1.Namespace{}
		in.Name = namespace
		e.Expect(e.client.Create(e.t.Context(), in)).To(Succeed())
	}
	e.Expect(cluster.InstallObjects(e.t.Context(), e.cluster.Config, objects)).To(Succeed())
	if first {
		example, _ := examples(e.WithT, opened)
		e.createUpgraded(example)
	}
}

// createUpgraded creates a policy with automatic driver upgrades, as the chart has them.
func (e *env) createUpgraded(policy *v1.ClusterPolicy) {
	e.t.Helper()
	policy.Name = "cluster-policy"
	policy.Spec.Driver.UpgradePolicy = &v1.DriverUpgradePolicySpec{AutoUpgrade: new(true)}
	e.Expect(e.client.Create(e.t.Context(), policy)).To(Succeed())
}
