package dropin

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// life is a release from NVIDIA's leftovers to its removal, by one version of Helm.
type life struct {
	*env
	// before are the objects of the empty cluster, by key.
	before map[string]string
}

// step is a command of Helm.
type step struct {
	name string
	args []string
	// stops: Helm fails, with this in its message, and no object changes.
	stops []string
	// documented is the part of the message by which docs/install.md has what to do.
	documented string
	// then checks what exists after a command that succeeds.
	then func(l *life)
	// meanwhile runs at the same time.
	meanwhile func(l *life) (done func())
	// next checks what Helm recorded, or does what the user has to do outside of Helm.
	next func(l *life)
	// full steps only run with TEST_FULL=1.
	full bool
}

// TestEachStepOfHelmIsWhole installs, upgrades, rolls back and removes the chart by Helm 3 and by Helm 4, beside the
// definition that NVIDIA's chart leaves, with a stop at every step: none leaves a half state, and docs/install.md has
// what to do then.
func TestEachStepOfHelmIsWhole(t *testing.T) {
	t.Parallel()
	for name, helm := range map[string]struct {
		release packaged.HelmFunc
		begin   []step
		// unready is what it prints of a hook that has not ended.
		unready string
	}{
		"Helm 3": {packaged.Helm3, beginByHelm3(), "timed out waiting for the condition"},
		"Helm 4": {packaged.Helm, beginByHelm4(), "resource Job/gpu-operator/gpu-operator-uninstall not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "Helm 3" {
				cluster.SkipInSample(t)
			}
			t.Parallel()
			e := newEnv(t)
			e.tool.Release = helm.release
			e.Expect(e.client.Create(t.Context(), decoded(e.WithT, "{apiVersion: v1, kind: Namespace, metadata: {name: "+
				namespace+"}}"))).To(Succeed())
			l := &life{env: e}
			l.Eventually(l.objects).Should(HaveKey("Service/default/kubernetes"), "the API server makes it after its start")
			l.before = l.objects()
			// As Helm 3 created them, whose chart is removed.
			for _, definition := range []string{nvidiasDefinition, e.driverDefinition()} {
				e.Expect(e.client.Create(t.Context(), decoded(e.WithT, definition), client.FieldOwner("helm"))).To(Succeed())
			}
			for _, s := range slices.Concat(helm.begin, refusedInstalls(), upgrades(), removals(helm.unready)) {
				if s.full && !cluster.FullCampaigns() {
					continue
				}
				if !t.Run(s.name, func(t *testing.T) { l.in(t).run(s) }) {
					return // The other steps need this one.
				}
			}
		})
	}
}

func (l *life) in(t *testing.T) *life { return &life{env: l.env.in(t), before: l.before} }

func (l *life) run(s step) {
	l.t.Helper()
	before := l.objects()
	done := func() {}
	if s.meanwhile != nil {
		done = s.meanwhile(l)
	}
	_, err := l.tryHelm(s.args...)
	done()
	if s.stops != nil {
		l.stopped(s, err)
	} else {
		l.Expect(err).NotTo(HaveOccurred())
	}
	if s.then != nil {
		s.then(l)
	} else {
		l.Expect(l.objects()).To(Equal(before), "nothing is half done")
	}
	if s.next != nil {
		s.next(l)
	}
}

// stopped checks the message of a command that fails, and where the user reads what to do.
func (l *life) stopped(s step, err error) {
	l.t.Helper()
	for _, part := range slices.Concat(s.stops, []string{s.documented}) {
		l.Expect(err).To(MatchError(ContainSubstring(part)))
	}
	guide, err := os.ReadFile(repo + "/docs/install.md")
	l.Expect(err).NotTo(HaveOccurred())
	l.Expect(string(guide)).To(ContainSubstring("`" + s.documented))
}

const (
	definitionKey       = "CustomResourceDefinition//clusterpolicies.nvidia.com"
	driverDefinitionKey = "CustomResourceDefinition//nvidiadrivers.nvidia.com"
)

func keyOf(object *unstructured.Unstructured) string {
	return object.GetKind() + "/" + object.GetNamespace() + "/" + object.GetName()
}

// objects returns what is specified of all objects beyond those of the empty cluster and Helm's records.
func (l *life) objects() map[string]string {
	l.t.Helper()
	all, err := cluster.Objects(l.t.Context(), l.cluster.Config)
	l.Expect(err).NotTo(HaveOccurred())
	found := map[string]string{}
	for _, object := range all {
		key := keyOf(object)
		kind, _, _ := unstructured.NestedString(object.Object, "type")
		if _, old := l.before[key]; old || kind == "helm.sh/release.v1" {
			continue
		}
		content := map[string]any{"labels": object.GetLabels(), "annotations": object.GetAnnotations()}
		for name, value := range object.Object {
			if name != "metadata" && name != "status" {
				content[name] = value
			}
		}
		text, err := json.Marshal(content)
		l.Expect(err).NotTo(HaveOccurred())
		found[key] = string(text)
	}
	return found
}

// onlyTheDefinitions: Helm keeps them.
func onlyTheDefinitions(l *life) {
	l.t.Helper()
	l.Expect(slices.Collect(maps.Keys(l.objects()))).To(ConsistOf(definitionKey, driverDefinitionKey))
}

// theManifest: each object of the release exists, the definitions, and nothing else.
func theManifest(l *life) {
	l.t.Helper()
	objects, err := packaged.Decode(l.helm("get", "manifest", release))
	l.Expect(err).NotTo(HaveOccurred())
	want := []string{definitionKey, driverDefinitionKey}
	for _, object := range objects {
		want = append(want, keyOf(object))
	}
	l.Expect(slices.Collect(maps.Keys(l.objects()))).To(ConsistOf(want))
	l.Expect(l.helm("status", release)).To(ContainSubstring("STATUS: deployed"))
}

// gfdIs: the policy has this value, and all other objects exist.
func gfdIs(enabled bool) func(l *life) {
	return func(l *life) {
		l.t.Helper()
		theManifest(l)
		l.Expect(field(l.WithT, l.policy(policyName), "spec", "gfd", "enabled")).To(Equal(enabled))
	}
}

const contradiction = "cdi.enabled=false,cdi.nriPluginEnabled=true"

func beginByHelm3() []step {
	return []step{{
		name: "install beside NVIDIA's definition", args: []string{"install", release, chart},
		stops:      []string{"kubectl apply --server-side --force-conflicts -f CHART/crds/"},
		documented: "clusterpolicies.nvidia.com is that of another operator",
		next:       func(l *life) { l.applyDefinition() },
	}}
}

func beginByHelm4() []step {
	return []step{{
		name: "install beside NVIDIA's definition", args: []string{"install", release, chart},
		stops:      []string{"failed to install CRD"},
		documented: `conflict with "helm"`,
	}, {
		name: "install over NVIDIA's definition", args: []string{"install", release, chart, "--force-conflicts"},
		then: gfdIs(true),
	}, {
		name: "uninstall", args: []string{"uninstall", release}, meanwhile: completes(uninstallHook),
		then: onlyTheDefinitions,
	}}
}

func refusedInstalls() []step {
	return []step{{
		name:       "install, refused by the chart",
		args:       []string{"install", release, chart, "--set", "driver.repository=https://mirror.local"},
		stops:      []string{"driver.repository", "must be a registry and path without https://"},
		documented: "execution error at",
		next: func(l *life) {
			l.Expect(l.helm("list", "--short")).To(BeEmpty(), "the same command can be repeated")
		},
	}, {
		name:  "install, refused by the API server",
		args:  []string{"install", release, chart, "--set", contradiction},
		stops: []string{"spec.cdi", "remove cdi.enabled=false or nriPluginEnabled"}, documented: "pre-install",
		next: func(l *life) { l.Expect(l.helm("list", "--short")).To(Equal(release + "\n")) },
	}, {
		name: "install again", args: []string{"install", release, chart}, full: true,
		stops: []string{"Error: INSTALLATION FAILED"}, documented: "a name that is still in use",
	}, {
		name: "upgrade after a refused install",
		args: []string{"upgrade", "--install", "--reset-values", release, chart}, full: true,
		meanwhile: completes(upgradeHook), then: gfdIs(true),
	}, {
		name: "uninstall after a refused install", args: []string{"uninstall", release},
		meanwhile: completes(uninstallHook), then: onlyTheDefinitions,
	}, {
		name: "install", args: []string{"install", release, chart}, then: gfdIs(true),
	}}
}

func upgrades() []step {
	change := []string{"upgrade", release, chart, "--set", "gfd.enabled=false"}
	return []step{{
		name: "upgrade, refused by the API server", args: append(change[:3:3], "--set", contradiction),
		stops: []string{"spec.cdi", "remove cdi.enabled=false or nriPluginEnabled"}, documented: "pre-upgrade",
	}, {
		name: "upgrade, with a hook that fails", args: append(slices.Clone(change), "--timeout", "1s"),
		stops: []string{"UPGRADE FAILED"}, documented: "pre-upgrade hooks failed",
	}, {
		name: "upgrade again", args: change, meanwhile: completes(upgradeHook), then: gfdIs(false),
	}, {
		name: "roll back to the first revision", args: []string{"rollback", release, "1"}, then: gfdIs(true),
	}, {
		name: "roll back to the refused revision", args: []string{"rollback", release, "2"}, full: true,
		stops: []string{"remove cdi.enabled=false or nriPluginEnabled"}, documented: "helm rollback",
	}}
}

func removals(unready string) []step {
	return []step{{
		name:      "upgrade, to remove the definition too",
		args:      []string{"upgrade", release, chart, "--reset-values", "--set", "operator.cleanupCRD=true"},
		meanwhile: completes(upgradeHook), then: gfdIs(true),
	}, {
		name: "uninstall, with a hook that fails", args: []string{"uninstall", release, "--timeout", "1s"},
		stops: []string{"Error: "}, documented: unready,
	}, {
		name: "uninstall again, with a hook that fails later", args: []string{"uninstall", release, "--timeout", "5s"},
		meanwhile: completes(uninstallHook),
		stops:     []string{"Error: "}, documented: "uninstallation completed with 1 error(s)", then: onlyTheDefinitions,
		next: func(l *life) {
			l.Expect(l.helm("list", "--short")).To(BeEmpty())
			for _, definition := range []string{nvidiasDefinition, l.driverDefinition()} {
				l.Expect(l.client.Delete(l.t.Context(), decoded(l.WithT, definition))).To(Succeed())
			}
			l.Eventually(l.objects).WithTimeout(time.Minute).Should(BeEmpty())
		},
	}}
}

// driverDefinition returns the definition of NVIDIADriver, which is in both charts.
func (e *env) driverDefinition() string {
	e.t.Helper()
	text, err := os.ReadFile(chart + "/crds/nvidia.com_nvidiadrivers.yaml")
	e.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// applyDefinition applies the definition in the chart as kubectl apply --server-side --force-conflicts does.
func (e *env) applyDefinition() {
	e.t.Helper()
	text, err := os.ReadFile(chart + "/crds/nvidia.com_clusterpolicies.yaml")
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(e.client.Apply(e.t.Context(), client.ApplyConfigurationFromUnstructured(decoded(e.WithT, string(text))),
		client.FieldOwner("kubectl"), client.ForceOwnership)).To(Succeed())
}

// The Jobs of hooks.
const (
	upgradeHook   = "gpu-operator-upgrade-crd"
	uninstallHook = "gpu-operator-uninstall"
)

// completes simulates the Job of a hook, which nothing runs here, until done is called. The definition is the chart's
// already, and no operator has installed anything for the policy.
func completes(hook string) func(*life) (done func()) {
	return func(l *life) func() {
		ctx, cancel := context.WithCancel(l.t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			job := &batchv1.Job{}
			for ctx.Err() == nil {
				if l.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: hook}, job) == nil {
					if complete(job); l.client.Status().Update(ctx, job) == nil {
						return
					}
				}
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		}()
		return func() {
			cancel()
			<-ended
		}
	}
}

// complete sets the status of a Job whose pod has succeeded.
func complete(job *batchv1.Job) {
	now := metav1.Now()
	job.Status = batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Succeeded: 1}
	for _, condition := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: condition, Status: corev1.ConditionTrue, LastProbeTime: now, LastTransitionTime: now,
		})
	}
}
