package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// newField is the block that the definition of the previous release does not have.
const newField = "nodeStatusExporter"

// TestUpgradeUpdatesTheDefinition installs a release whose definition does not have a field, and upgrades to this one
// with that field set. The hook's command runs with the permissions of its own account; no operand's pod is replaced.
// TEST_FULL=1 also runs it on the oldest Kubernetes.
func TestUpgradeUpdatesTheDefinition(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	versions := []string{cluster.Newest}
	if cluster.FullCampaigns() {
		versions = append(versions, cluster.Oldest)
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			begin, e := time.Now(), newEnvOn(t, version, 2)
			e.upgradeUpdatesTheDefinition()
			t.Logf("Kubernetes %s: in %s", e.cluster.Version, time.Since(begin).Round(100*time.Millisecond))
		})
	}
}

func (e *env) upgradeUpdatesTheDefinition() {
	e.t.Helper()
	mark := e.mark()
	e.Expect(e.asAdmin("apply-crds",
		"--existing")).To(ContainSubstring("CustomResourceDefinition clusterpolicies.nvidia.com does not exist yet"))
	// No pod of the chart is scheduled: the operator and the hooks run as processes.
	pinned := []string{"--namespace", namespace, "--set", "operator.nodeSelector.pool=none"}
	e.helm(append([]string{"install", release, previousChart(e.t), "--create-namespace"}, pinned...)...)
	e.Expect(e.storedProperties()).NotTo(HaveKey(newField))
	e.runPrevious()
	before := e.pods()
	e.Expect(before).NotTo(BeEmpty())

	played := e.playHook("gpu-operator-upgrade-crd")
	upgrade := append([]string{"upgrade", release, chart, "--set", newField + ".enabled=true"}, pinned...)
	e.helm(append(upgrade, "--timeout", "30s")...)
	e.Expect(played()).To(ContainSubstring("CustomResourceDefinition clusterpolicies.nvidia.com is applied"))
	e.Expect(e.storedProperties()).To(HaveKey(newField))
	e.Expect(e.policy().Spec.NodeStatusExporter).To(HaveField("Enabled", HaveValue(BeTrue())), "the field is stored")
	// The Deployment replaces the operator by that of the new release.
	e.stop()
	e.run(namespace)
	e.awaitReady()
	// The status may still be that of the previous operator, which was ready with the same generation.
	e.Eventually(func() []string { return e.daemonSets(namespace) }).WithTimeout(time.Minute).Should(
		ContainElement("nvidia-node-status-exporter"), "the field works")
	e.Eventually(func() any {
		return apimeta.FindStatusCondition(e.policy().Status.Conditions, v1.ConditionCRDOutdated)
	}).WithTimeout(time.Minute).Should(BeNil())
	for name, uid := range before {
		e.Expect(e.pods()).To(HaveKeyWithValue(name, uid), "no pod is replaced")
	}

	// A second upgrade changes nothing, and the hook succeeds.
	generation, pods := e.policy().Generation, e.pods()
	played = e.playHook("gpu-operator-upgrade-crd")
	e.helm(append(upgrade, "--timeout", "30s")...)
	e.Expect(played()).To(ContainSubstring("is up to date"))
	e.Expect(e.policy().Generation).To(Equal(generation))
	e.awaitReady()
	e.Expect(e.pods()).To(Equal(pods))

	e.helmTest()
	e.noneForbidden(namespace, mark)
	for _, account := range []string{"gpu-operator-upgrade-crd", "gpu-operator-test"} {
		calls, err := e.cluster.Since(mark)
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(calls.By(cluster.ServiceAccountUser(namespace, account)).Forbidden().String()).To(BeEmpty())
	}
	e.reuseValues()
	e.failedHooksLeaveNothing()
	e.commandsReportErrors()
	e.uninstallRemovesTheDefinition()
}

// failedHooksLeaveNothing lets the hooks of an upgrade and of a test fail, as their pods never start: nothing of them
// remains for helm uninstall, which does not remove hooks.
func (e *env) failedHooksLeaveNothing() {
	e.t.Helper()
	_, err := e.tryHelm("upgrade", release, chart, "--namespace", namespace, "--reuse-values", "--timeout", "2s")
	e.Expect(err).To(MatchError(ContainSubstring("pre-upgrade hooks failed")))
	e.noHooks()
	_, err = e.tryHelm("test", release, "--namespace", namespace, "--timeout", "2s")
	e.Expect(err).To(HaveOccurred())
	e.noHooks()
}

// noHooks waits until no object of a hook remains.
func (e *env) noHooks() {
	e.t.Helper()
	for _, name := range []string{
		"gpu-operator-upgrade-crd", "gpu-operator-test", "gpu-operator-uninstall", "gpu-operator-cleanup-crd",
	} {
		key := client.ObjectKey{Namespace: namespace, Name: name}
		for _, kind := range []string{
			"v1 ServiceAccount", "v1 Pod", "batch/v1 Job", "rbac.authorization.k8s.io/v1 ClusterRole",
			"rbac.authorization.k8s.io/v1 ClusterRoleBinding",
		} {
			object := &unstructured.Unstructured{}
			version, kind, _ := strings.Cut(kind, " ")
			object.SetAPIVersion(version)
			object.SetKind(kind)
			e.Eventually(func() bool {
				return apierrors.IsNotFound(e.client.Get(e.t.Context(), key, object))
			}).WithTimeout(time.Minute).Should(BeTrue(), "%s %s", kind, name)
		}
	}
}

// uninstallRemovesTheDefinition removes the release, and the definition with it.
func (e *env) uninstallRemovesTheDefinition() {
	e.t.Helper()
	mark := e.mark()
	e.helm("upgrade", release, chart, "--namespace", namespace, "--set",
		"operator.upgradeCRD=false,operator.cleanupCRD=true,operator.nodeSelector.pool=none")
	removed, played := e.playHook("gpu-operator-uninstall"), e.playHook("gpu-operator-cleanup-crd")
	_, err := e.tryHelm("uninstall", release, "--namespace", namespace, "--timeout", "30s")
	e.Expect(removed()).To(HaveSuffix("ClusterPolicy cluster-policy is gone\nNo ClusterPolicy is left\n"))
	e.Expect(played()).To(ContainSubstring("CustomResourceDefinition clusterpolicies.nvidia.com is deleted"))
	e.Expect(err).NotTo(HaveOccurred())
	err = e.client.Get(e.t.Context(), client.ObjectKey{Name: "clusterpolicies.nvidia.com"}, definitionObject())
	e.Expect(apierrors.IsNotFound(err)).To(BeTrue())
	e.Expect(e.asAdmin("delete-crds")).To(ContainSubstring("does not exist"))
	calls, err := e.cluster.Since(mark)
	e.Expect(err).NotTo(HaveOccurred())
	account := cluster.ServiceAccountUser(namespace, "gpu-operator-cleanup-crd")
	e.Expect(calls.By(account).Forbidden().String()).To(BeEmpty())
	e.noHooks()
}

// runPrevious runs the operator in the state after one of the previous release, for which that definition was
// complete: the policy has been applied, and the operator observes missing fields that the policy does not set.
func (e *env) runPrevious() {
	e.t.Helper()
	e.asAdmin("apply-crds")
	e.run(namespace)
	e.awaitReady()
	// The API server writes its status.
	e.Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		definition := e.storedDefinition()
		delete(properties(e.WithT, definition.Object), newField)
		return e.client.Update(e.t.Context(), definition)
	})).To(Succeed())
	e.Eventually(func() any {
		return apimeta.FindStatusCondition(e.policy().Status.Conditions, v1.ConditionCRDOutdated)
	}).WithTimeout(time.Minute).ShouldNot(BeNil())
}

// reuseValues changes the driver as in guides: earlier values stay, and without autoUpgrade no driver is replaced.
func (e *env) reuseValues() {
	e.t.Helper()
	before := e.pods()
	played := e.playHook("gpu-operator-upgrade-crd")
	e.helm("upgrade", release, chart, "--namespace", namespace, "--reuse-values", "--set", "driver.version=580.82.07",
		"--set", "driver.upgradePolicy.autoUpgrade=false", "--timeout", "30s")
	e.Expect(played()).To(ContainSubstring("is up to date"))
	spec := e.policy().Spec
	e.Expect(spec.Driver).To(HaveField("Version", "580.82.07"))
	e.Expect(spec.NodeStatusExporter).To(HaveField("Enabled", HaveValue(BeTrue())))
	e.Eventually(func() int64 {
		return e.policy().Status.ObservedGeneration
	}).WithTimeout(time.Minute).Should(Equal(e.policy().Generation))
	for name, uid := range before {
		e.Expect(e.pods()).To(HaveKeyWithValue(name, uid), "a changed driver is not replaced")
	}
}

// previousChart returns a copy of the chart as of a previous release: its definition does not have a field.
func previousChart(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	dir := filepath.Join(t.TempDir(), "gpu-operator")
	g.Expect(os.CopyFS(dir, os.DirFS(chart))).To(Succeed())
	edit := func(name string, change func(object map[string]any)) {
		path, object := filepath.Join(dir, name), map[string]any{}
		text, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(yaml.Unmarshal(text, &object)).To(Succeed())
		change(object)
		text, err = json.Marshal(object) // Which is YAML, too.
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.WriteFile(path, text, 0o600)).To(Succeed())
	}
	edit("Chart.yaml", func(description map[string]any) { description["version"] = "0.0.0-alpha" })
	edit("files/keys.json", func(keys map[string]any) {
		always, _ := keys["always"].(map[string]any)
		delete(always, newField)
	})
	edit("crds/nvidia.com_clusterpolicies.yaml",
		func(definition map[string]any) { delete(properties(g, definition), newField) })
	return dir
}

// properties returns those of the spec in a definition.
func properties(g *WithT, definition map[string]any) map[string]any {
	versions, _, err := unstructured.NestedFieldNoCopy(definition, "spec", "versions")
	g.Expect(err).NotTo(HaveOccurred())
	list, _ := versions.([]any)
	g.Expect(list).To(HaveLen(1))
	first, _ := list[0].(map[string]any)
	found, _, err := unstructured.NestedFieldNoCopy(first, "schema", "openAPIV3Schema", "properties", "spec", "properties")
	g.Expect(err).NotTo(HaveOccurred())
	all, _ := found.(map[string]any)
	g.Expect(all).NotTo(BeEmpty())
	return all
}

// storedProperties returns those of the cluster's definition.
func (e *env) storedProperties() map[string]any {
	e.t.Helper()
	return properties(e.WithT, e.storedDefinition().Object)
}

func (e *env) storedDefinition() *unstructured.Unstructured {
	e.t.Helper()
	definition := definitionObject()
	e.Expect(e.client.Get(e.t.Context(), client.ObjectKey{Name: "clusterpolicies.nvidia.com"}, definition)).To(Succeed())
	return definition
}

func definitionObject() *unstructured.Unstructured {
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	return definition
}

// playHook simulates the kubelet for the next pod with this label: it runs the command of its container as a process
// with the permissions of the pod's account, and writes the result to the pod's status. The returned function waits
// for that and returns the output.
func (e *env) playHook(app string) func() string {
	type result struct {
		output string
		err    error
	}
	done := make(chan result, 1)
	ctx, cancel := context.WithTimeout(e.t.Context(), time.Minute)
	go func() {
		defer cancel()
		output, err := e.play(ctx, app)
		done <- result{output, err}
	}()
	return func() string {
		e.t.Helper()
		ended := <-done
		e.Expect(ended.err).NotTo(HaveOccurred())
		return ended.output
	}
}

func (e *env) play(ctx context.Context, app string) (string, error) {
	pod := &corev1.Pod{}
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		pods := &corev1.PodList{}
		err := e.client.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{"app": app})
		if err != nil || len(pods.Items) == 0 || pods.Items[0].Status.Phase != corev1.PodPending {
			return false, err
		}
		pod = &pods.Items[0]
		return true, nil
	})
	if err != nil {
		return "", fmt.Errorf("waiting for a pod of %s: %w", app, err)
	}
	kubeconfig, err := e.cluster.ServiceAccountKubeconfig(ctx, namespace, pod.Spec.ServiceAccountName, "")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, e.binary, pod.Spec.Containers[0].Args...)
	cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "HOME=" + e.tool.Home}
	output, failed := cmd.CombinedOutput()
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	if failed != nil {
		pod.Status.Phase = corev1.PodFailed
	}
	return string(output), e.client.Status().Patch(ctx, pod, client.MergeFrom(before))
}

// helmTest runs helm test.
func (e *env) helmTest() {
	e.t.Helper()
	played := e.playHook("gpu-operator-test")
	out := e.helm("test", release, "--namespace", namespace)
	e.Expect(played()).To(ContainSubstring("ClusterPolicy cluster-policy is ready, 2/2 GPU nodes"))
	e.Expect(out).To(MatchRegexp("Phase: *Succeeded"))
}

// commandsReportErrors runs the commands of the hooks in cases where they fail.
func (e *env) commandsReportErrors() {
	e.t.Helper()
	for _, c := range []struct {
		account string
		args    []string
		want    []string
	}{
		{
			"gpu-operator", []string{"apply-crds"},
			[]string{"applying CustomResourceDefinition clusterpolicies.nvidia.com", "forbidden"},
		},
		{
			"nvidia-driver", []string{"apply-crds"},
			[]string{"reading CustomResourceDefinition clusterpolicies.nvidia.com", "forbidden"},
		},
		{
			"gpu-operator", []string{"check-ready", "other", "--timeout=10s"},
			[]string{"ClusterPolicy other was not found within 10s: apply it"},
		},
		{"nvidia-driver", []string{"check-ready"}, []string{"watching ClusterPolicy cluster-policy", "forbidden"}},
	} {
		e.Expect(e.refused(c.account, c.args...)).To(And(HavePrefix("gpu-operator: "), ContainSubstring(c.want[0]),
			ContainSubstring(c.want[len(c.want)-1])))
	}
	// Without the operator a new spec is not observed.
	e.stop()
	e.helm("upgrade", release, chart, "--namespace", namespace, "--set", "gfd.enabled=false,operator.upgradeCRD=false")
	e.Expect(e.refused("gpu-operator", "check-ready", "--timeout=10s")).To(And(
		ContainSubstring("ClusterPolicy cluster-policy is not ready after 10s"),
		ContainSubstring("the operator has not observed the current spec: check that its pod is running"),
	))
	// An administrator can also create the definition without a chart.
	e.deleteDefinition()
	e.Expect(e.asAdmin("apply-crds")).
		To(ContainSubstring("CustomResourceDefinition clusterpolicies.nvidia.com is applied"))
	e.Expect(e.storedProperties()).To(HaveKey(newField))
}

func (e *env) deleteDefinition() {
	e.t.Helper()
	if policy := e.policy(); policy != nil {
		e.Expect(e.client.Delete(e.t.Context(), policy)).To(Succeed())
		e.abandon()
	}
	definition := definitionObject()
	definition.SetName("clusterpolicies.nvidia.com")
	e.Expect(e.client.Delete(e.t.Context(), definition)).To(Succeed())
	e.Eventually(func() bool {
		return apierrors.IsNotFound(e.client.Get(e.t.Context(), client.ObjectKeyFromObject(definition), definition))
	}).WithTimeout(time.Minute).Should(BeTrue())
}

// asAdmin returns the output of the operator's program with all permissions.
func (e *env) asAdmin(args ...string) string {
	e.t.Helper()
	output, err := e.program(e.cluster.Kubeconfig(), args...)
	e.Expect(err).NotTo(HaveOccurred(), output)
	return output
}

// program returns the output of the operator's program with the permissions of a kubeconfig.
func (e *env) program(kubeconfig string, args ...string) (string, error) {
	e.t.Helper()
	cmd := exec.CommandContext(e.t.Context(), e.binary, args...)
	cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "HOME=" + e.tool.Home}
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// refused returns the error of the operator's program with the permissions of an account.
func (e *env) refused(account string, args ...string) string {
	e.t.Helper()
	output, err := e.program(e.kubeconfig(namespace, account), args...)
	ended := &exec.ExitError{}
	e.Expect(errors.As(err, &ended)).To(BeTrue(), output)
	e.Expect(ended.ExitCode()).To(Equal(1))
	return output
}
