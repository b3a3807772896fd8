package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// newField is the block that the definition of the previous release does not have.
const newField = "nodeStatusExporter"

// TestUpgradeBringsTheDefinition installs a release whose definition lacks a field, and upgrades to this one with
// that field set. The hook's command runs with the rights of its own account; no operand's pod is replaced.
// TEST_FULL=1 does it on the oldest Kubernetes, too.
func TestUpgradeBringsTheDefinition(t *testing.T) {
	t.Parallel()
	versions := []string{cluster.Newest}
	if cluster.FullCampaigns() {
		versions = append(versions, cluster.Oldest)
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			begin, b := time.Now(), newBedOn(t, version, 2)
			b.upgradeBringsTheDefinition()
			t.Logf("Kubernetes %s: in %s", b.cluster.Version, time.Since(begin).Round(100*time.Millisecond))
		})
	}
}

func (b *bed) upgradeBringsTheDefinition() {
	b.t.Helper()
	mark := b.mark()
	b.Expect(b.asAdmin("apply-crds", "--existing")).To(ContainSubstring("There is no CustomResourceDefinition clusterpolicies.nvidia.com yet"))
	// No pod of the chart finds a node: the operator and the hooks run as processes.
	pinned := []string{"--namespace", namespace, "--set", "operator.nodeSelector.pool=none"}
	b.helm(append([]string{"install", release, previousChart(b.t), "--create-namespace"}, pinned...)...)
	b.Expect(b.storedProperties()).NotTo(HaveKey(newField))
	b.runPrevious()
	before := b.pods()
	b.Expect(before).NotTo(BeEmpty())

	played := b.playHook("gpu-operator-upgrade-crd")
	upgrade := append([]string{"upgrade", release, chart, "--set", newField + ".enabled=true"}, pinned...)
	b.helm(append(upgrade, "--timeout", "30s")...)
	b.Expect(played()).To(ContainSubstring("CustomResourceDefinition clusterpolicies.nvidia.com is applied"))
	b.Expect(b.storedProperties()).To(HaveKey(newField))
	b.Expect(b.policy().Spec.NodeStatusExporter).To(HaveField("Enabled", HaveValue(BeTrue())), "the field is stored")
	// The Deployment starts the operator of the new release in the place of the old one.
	b.stop()
	b.run(namespace)
	b.awaitReady()
	b.Expect(b.daemonSets(namespace)).To(ContainElement("nvidia-node-status-exporter"), "the field works")
	b.Eventually(func() any {
		return apimeta.FindStatusCondition(b.policy().Status.Conditions, v1.ConditionCRDOutdated)
	}).WithTimeout(20 * time.Second).Should(BeNil())
	for name, uid := range before {
		b.Expect(b.pods()).To(HaveKeyWithValue(name, uid), "no pod is replaced")
	}

	// Once more changes nothing, and the hook is content with what there is.
	generation, pods := b.policy().Generation, b.pods()
	played = b.playHook("gpu-operator-upgrade-crd")
	b.helm(append(upgrade, "--timeout", "30s")...)
	b.Expect(played()).To(ContainSubstring("is up to date"))
	b.Expect(b.policy().Generation).To(Equal(generation))
	b.awaitReady()
	b.Expect(b.pods()).To(Equal(pods))

	b.helmTest()
	b.noneForbidden(namespace, mark)
	for _, account := range []string{"gpu-operator-upgrade-crd", "gpu-operator-test"} {
		calls, err := b.cluster.Since(mark)
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(calls.By(cluster.ServiceAccountUser(namespace, account)).Forbidden().String()).To(BeEmpty())
	}
	b.reuseValues()
	b.commandsSayWhatIsWrong()
}

// runPrevious runs the operator as it would be after one of the previous release, which lacked no field of that
// definition: the policy has been applied, and the operator sees that fields are missing which it does not set.
func (b *bed) runPrevious() {
	b.t.Helper()
	b.asAdmin("apply-crds")
	b.run(namespace)
	b.awaitReady()
	definition := b.storedDefinition()
	delete(properties(b.WithT, definition.Object), newField)
	b.Expect(b.client.Update(b.t.Context(), definition)).To(Succeed())
	b.Eventually(func() any {
		return apimeta.FindStatusCondition(b.policy().Status.Conditions, v1.ConditionCRDOutdated)
	}).WithTimeout(20 * time.Second).ShouldNot(BeNil())
}

// reuseValues upgrades the driver as guides tell people: what was set before stays, and no driver is replaced by
// itself.
func (b *bed) reuseValues() {
	b.t.Helper()
	before := b.pods()
	played := b.playHook("gpu-operator-upgrade-crd")
	b.helm("upgrade", release, chart, "--namespace", namespace, "--reuse-values", "--set", "driver.version=580.82.07", "--timeout", "30s")
	b.Expect(played()).To(ContainSubstring("is up to date"))
	spec := b.policy().Spec
	b.Expect(spec.Driver).To(HaveField("Version", "580.82.07"))
	b.Expect(spec.NodeStatusExporter).To(HaveField("Enabled", HaveValue(BeTrue())))
	b.Eventually(func() int64 { return b.policy().Status.ObservedGeneration }).WithTimeout(20 * time.Second).Should(Equal(b.policy().Generation))
	for name, uid := range before {
		b.Expect(b.pods()).To(HaveKeyWithValue(name, uid), "a changed driver waits")
	}
}

// previousChart is a copy of the chart as a release before this one may have been: its definition lacks a field.
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
		text, err = yaml.Marshal(object)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.WriteFile(path, text, 0o600)).To(Succeed())
	}
	edit("Chart.yaml", func(description map[string]any) { description["version"] = "0.0.0-alpha" })
	edit("crds/nvidia.com_clusterpolicies.yaml", func(definition map[string]any) { delete(properties(g, definition), newField) })
	return dir
}

// properties are those of the spec in a definition.
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

// storedProperties are those that the cluster's definition has.
func (b *bed) storedProperties() map[string]any {
	b.t.Helper()
	return properties(b.WithT, b.storedDefinition().Object)
}

func (b *bed) storedDefinition() *unstructured.Unstructured {
	b.t.Helper()
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	b.Expect(b.client.Get(b.t.Context(), client.ObjectKey{Name: "clusterpolicies.nvidia.com"}, definition)).To(Succeed())
	return definition
}

// playHook plays the kubelet for the next pod with this label: it runs the command of its container as a process
// that has the rights of the pod's account, and reports how it ended. The function that it returns waits for that
// and gives the output.
func (b *bed) playHook(app string) func() string {
	type result struct {
		output string
		err    error
	}
	done := make(chan result, 1)
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	go func() {
		defer cancel()
		output, err := b.play(ctx, app)
		done <- result{output, err}
	}()
	return func() string {
		b.t.Helper()
		ended := <-done
		b.Expect(ended.err).NotTo(HaveOccurred())
		return ended.output
	}
}

func (b *bed) play(ctx context.Context, app string) (string, error) {
	pod := &corev1.Pod{}
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		pods := &corev1.PodList{}
		err := b.client.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{"app": app})
		if err != nil || len(pods.Items) == 0 || pods.Items[0].Status.Phase != corev1.PodPending {
			return false, err
		}
		pod = &pods.Items[0]
		return true, nil
	})
	if err != nil {
		return "", fmt.Errorf("waiting for a pod of %s: %w", app, err)
	}
	kubeconfig, err := b.cluster.ServiceAccountKubeconfig(ctx, namespace, pod.Spec.ServiceAccountName, "")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, b.binary, pod.Spec.Containers[0].Args...)
	cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "HOME=" + b.home}
	output, failed := cmd.CombinedOutput()
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	if failed != nil {
		pod.Status.Phase = corev1.PodFailed
	}
	return string(output), b.client.Status().Patch(ctx, pod, client.MergeFrom(before))
}

// helmTest runs helm test.
func (b *bed) helmTest() {
	b.t.Helper()
	played := b.playHook("gpu-operator-test")
	out := b.helm("test", release, "--namespace", namespace)
	b.Expect(played()).To(ContainSubstring("ClusterPolicy cluster-policy is ready, 2/2 GPU nodes"))
	b.Expect(out).To(MatchRegexp("Phase: *Succeeded"))
}

// commandsSayWhatIsWrong runs the commands of the hooks where they cannot succeed.
func (b *bed) commandsSayWhatIsWrong() {
	b.t.Helper()
	for _, c := range []struct {
		account string
		args    []string
		want    []string
	}{
		{"gpu-operator", []string{"apply-crds"}, []string{"applying CustomResourceDefinition clusterpolicies.nvidia.com", "forbidden"}},
		{"nvidia-driver", []string{"apply-crds"}, []string{"reading CustomResourceDefinition clusterpolicies.nvidia.com", "forbidden"}},
		{"gpu-operator", []string{"check-ready", "other", "--timeout=1s"}, []string{"there was no ClusterPolicy other within 1s: apply one"}},
		{"nvidia-driver", []string{"check-ready"}, []string{"watching ClusterPolicy cluster-policy", "forbidden"}},
	} {
		b.Expect(b.refused(c.account, c.args...)).To(And(HavePrefix("gpu-operator: "), ContainSubstring(c.want[0]), ContainSubstring(c.want[len(c.want)-1])))
	}
	// Nobody looks at a new spec once the operator is gone.
	b.stop()
	b.helm("upgrade", release, chart, "--namespace", namespace, "--set", "gfd.enabled=false,operator.upgradeCRD=false")
	b.Expect(b.refused("gpu-operator", "check-ready", "--timeout=1s")).To(And(
		ContainSubstring("ClusterPolicy cluster-policy is not ready after 1s"),
		ContainSubstring("the operator has not seen its present spec: does it run?"),
	))
	// Without a chart, and with rights of one's own, the definition can be made, too.
	b.deleteDefinition()
	b.Expect(b.asAdmin("apply-crds")).To(ContainSubstring("CustomResourceDefinition clusterpolicies.nvidia.com is applied"))
	b.Expect(b.storedProperties()).To(HaveKey(newField))
}

func (b *bed) deleteDefinition() {
	b.t.Helper()
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName("clusterpolicies.nvidia.com")
	b.Expect(b.client.Delete(b.t.Context(), definition)).To(Succeed())
	b.Eventually(func() bool {
		return apierrors.IsNotFound(b.client.Get(b.t.Context(), client.ObjectKeyFromObject(definition), definition))
	}).WithTimeout(30 * time.Second).Should(BeTrue())
}

// asAdmin is what the operator's program prints with all rights.
func (b *bed) asAdmin(args ...string) string {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), b.binary, args...)
	cmd.Env = []string{"KUBECONFIG=" + b.cluster.Kubeconfig(), "HOME=" + b.home}
	output, err := cmd.CombinedOutput()
	b.Expect(err).NotTo(HaveOccurred(), "%s", output)
	return string(output)
}

// refused is what the operator's program complains about when it runs with the rights of an account.
func (b *bed) refused(account string, args ...string) string {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), b.binary, args...)
	cmd.Env = []string{"KUBECONFIG=" + b.kubeconfig(namespace, account), "HOME=" + b.home}
	output, err := cmd.CombinedOutput()
	b.Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}), "%s", output)
	b.Expect(cmd.ProcessState.ExitCode()).To(Equal(1))
	return string(output)
}
