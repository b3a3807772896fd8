package migration

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const (
	nothingToDo = "Nothing is left to do.\n"
	// discoveryApp is the app of this operator's node discovery, which NVIDIA's does not have.
	discoveryApp = "nvidia-node-discovery"
)

// plugin builds the plugin of kubectl once for all tests.
var plugin = sync.OnceValues(func() (string, error) {
	return cluster.BuildPlugin(context.Background(), os.Stderr)
})

// TestBackFromANewInstallation: NVIDIA's operator takes over what this one has installed itself. Its validator has
// another selector, and the drivers are several DaemonSets. An earlier run of the command has ended after it had
// deleted those.
func TestBackFromANewInstallation(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newCluster(t, ubuntus("24.04", "22.04"))
	e.install()
	e.start()
	e.awaitReady(v1.StateReady)
	e.awaitPods(true)
	e.deployTenants()
	e.Expect(e.driverSets()).To(HaveLen(2))
	e.leave()
	for _, name := range e.driverSets() {
		e.orphan(name)
	}
	e.comeBack()
}

// orphan deletes a DaemonSet without its pods.
func (e *env) orphan(name string) {
	e.t.Helper()
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	e.Expect(e.client.Delete(e.t.Context(), ds, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
	e.Eventually(func() error {
		return e.client.Get(e.t.Context(), client.ObjectKeyFromObject(ds), ds)
	}).Should(Satisfy(apierrors.IsNotFound))
}

// back: NVIDIA's operator takes over what this one has left, while everything runs, in the order of docs/migration.md.
// Afterwards nothing of this operator is left. Drivers that are as its own count as up to date.
func (e *env) back() {
	e.t.Helper()
	e.leave()
	e.comeBack()
	e.Eventually(e.updatedDrivers).Should(Equal(int32(nodes)), "drivers that NVIDIA's operator reports as up to date")
}

// leave ends this operator, and starts a new watch of all pods.
func (e *env) leave() {
	e.t.Helper()
	own := e.deployment("gpu-operator", "ghcr.io/clusterpolicy/gpu-operator:v1.2.3", "OPERATOR_IMAGE")
	e.Expect(e.client.Create(e.t.Context(), own)).To(Succeed())
	e.Expect(e.policy().Finalizers).NotTo(BeEmpty(), "this operator's finalizer")
	e.Expect(e.markAsNVIDIAs()).To(Satisfy(apierrors.IsForbidden), "this operator's admission policies")
	e.stop()
	e.watch = NewWatcher(e.t, e.cluster.SimulatorConfig)
}

// comeBack does what docs/migration.md describes, once this operator has ended.
func (e *env) comeBack() {
	e.t.Helper()
	begin := time.Now()
	for _, args := range [][]string{{"--check"}, {"--yes"}} {
		e.t.Log(e.migratesBack(args...))
	}
	e.Expect(e.migratesBack("--yes")).To(Equal(nothingToDo))
	e.t.Logf("left after %s", time.Since(begin).Round(time.Second))
	e.Expect(e.driverSets()).To(Equal([]string{DriverName}))
	e.Expect(e.watch.Err()).NotTo(HaveOccurred())
	for app := range e.watch.Apps() {
		e.Expect(e.watch.EndedOn(app)).To(BeEmpty(), "%s, until NVIDIA's operator is installed", app)
	}
	e.Eventually(e.markAsNVIDIAs).Should(Succeed())
	_, err := e.kubectlGPU("--finish", "--yes")
	e.Expect(err).To(HaveOccurred(), "NVIDIA's operator is not installed")

	theirs := e.deployment("theirs", "nvcr.io/nvidia/gpu-operator:v26.7.0", "DRIVER_IMAGE")
	e.Expect(e.client.Create(e.t.Context(), theirs)).To(Succeed())
	e.Expect(e.theirs.Reconcile(e.t.Context(), e.policy())).To(Succeed())
	e.awaitPods(false)
	e.t.Logf("taken back after %s", time.Since(begin).Round(time.Second))
	e.undisturbed()
	e.t.Log(e.migratesBack("--finish", "--yes"))
	e.Expect(e.migratesBack("--finish", "--yes")).To(Equal(nothingToDo))
	e.undisturbed(discoveryApp)
	e.Eventually(e.leftOfOurs).Should(BeEmpty())
}

// deployment returns one of an operator without pods. Operators are told apart by a variable.
func (e *env) deployment(name, image, variable string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	d.Spec.Replicas = new(int32(1))
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec = corev1.PodSpec{
		NodeSelector: map[string]string{"example.com/none": "true"},
		Containers: []corev1.Container{{
			Name: "gpu-operator", Image: image, Env: []corev1.EnvVar{{Name: variable, Value: "x"}},
		}},
	}
	return d
}

// markAsNVIDIAs writes an annotation on a node that only NVIDIA's operator uses, with an account of the same name. It
// is in another namespace, so that this operator is not blamed for the refusal.
func (e *env) markAsNVIDIAs() error {
	as := rest.CopyConfig(e.cluster.SimulatorConfig)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: cluster.ServiceAccountUser("default", account), Groups: []string{"system:masters"},
	}
	theirs, err := client.New(as, client.Options{})
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}}
	patch := []byte(`{"metadata":{"annotations":{"nvidia.com/gpu-driver-upgrade-validation-start-time":"1"}}}`)
	return theirs.Patch(e.t.Context(), node, client.RawPatch("application/merge-patch+json", patch))
}

// migratesBack runs kubectl gpu migrate --back, and returns what it prints.
func (e *env) migratesBack(args ...string) string {
	e.t.Helper()
	out, err := e.kubectlGPU(args...)
	e.Expect(err).NotTo(HaveOccurred(), out)
	return out
}

// kubectlGPU runs kubectl gpu migrate --back by the pinned kubectl, as users do.
func (e *env) kubectlGPU(args ...string) (string, error) {
	e.t.Helper()
	return e.migrate(append([]string{"--back"}, args...)...)
}

// migrate runs kubectl gpu migrate by the pinned kubectl, as users do.
func (e *env) migrate(args ...string) (string, error) {
	e.t.Helper()
	binary, err := plugin()
	e.Expect(err).NotTo(HaveOccurred())
	path := e.t.TempDir()
	cmd, err := cluster.PluginCommand(e.t.Context(), repo, binary, path, append([]string{"migrate"}, args...)...)
	e.Expect(err).NotTo(HaveOccurred())
	cmd.Env = []string{"KUBECONFIG=" + e.cluster.Kubeconfig(), "HOME=" + path, "PATH=" + path}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// driverSets returns the names of the DaemonSets with drivers.
func (e *env) driverSets() []string {
	e.t.Helper()
	list := &appsv1.DaemonSetList{}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	var found []string
	for i := range list.Items {
		if name := list.Items[i].Name; strings.HasPrefix(name, DriverName) {
			found = append(found, name)
		}
	}
	return found
}

// updatedDrivers returns how many driver pods have the newest template of their DaemonSet.
func (e *env) updatedDrivers() (int32, error) {
	ds := &appsv1.DaemonSet{}
	err := e.client.Get(e.t.Context(), client.ObjectKey{Namespace: namespace, Name: DriverName}, ds)
	return ds.Status.UpdatedNumberScheduled, err
}

// leftOfOurs returns what is left of this operator in the whole cluster: its labels, annotations, finalizers,
// conditions and its part of the policy's status, and what only its installer has. Its CRD stays.
func (e *env) leftOfOurs() ([]string, error) {
	objects, err := cluster.Objects(e.t.Context(), e.cluster.SimulatorConfig)
	var left []string
	for _, object := range objects {
		name := object.GetKind() + " " + object.GetName()
		keys := slices.Concat(slices.Collect(maps.Keys(object.GetLabels())), object.GetFinalizers(),
			slices.Collect(maps.Keys(object.GetAnnotations())), conditionTypes(object))
		for _, key := range keys {
			if strings.HasPrefix(key, "nvidia.com/gpu-operator.") || strings.HasPrefix(key, "clusterpolicy.github.io/") ||
				key == "nvidia.com/GPUReady" || isOwnDeployLabel(key) {
				left = append(left, name+": "+key)
			}
		}
		if object.GetLabels()["app.kubernetes.io/name"] == "gpu-operator" &&
			object.GetLabels()["helm.sh/chart"] != chartVersion && isOnlyOurs(object) {
			left = append(left, name)
		}
		if object.GetKind() == "ClusterPolicy" {
			left = append(left, foreignStatus(object)...)
		}
	}
	return left, err
}

// isOwnDeployLabel reports whether the label gives a node an operand that NVIDIA's operator does not have.
func isOwnDeployLabel(key string) bool {
	_, theirs := nodeLabels()[key]
	return strings.HasPrefix(key, deployPrefix) && !theirs
}

// foreignStatus returns the fields and conditions in the status of a policy that NVIDIA's operator does not have.
func foreignStatus(policy *unstructured.Unstructured) []string {
	status, _, _ := unstructured.NestedMap(policy.Object, "status")
	found := slices.Concat(slices.Collect(maps.Keys(status)), conditionTypes(policy))
	return slices.DeleteFunc(found, func(name string) bool {
		return slices.Contains([]string{"state", "namespace", "conditions", "Ready", "Error"}, name)
	})
}

// isOnlyOurs reports whether NVIDIA's operator has no object of this name. It uses the accounts that it finds, and has
// an account of its own, with a Role and a ClusterRole, under the same name.
func isOnlyOurs(object *unstructured.Unstructured) bool {
	shared := append(slices.Clone(accounts), "gpu-operator", "nvidia-dcgm", "nvidia-node-status-exporter")
	switch object.GetKind() {
	case "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
		return !slices.Contains(shared, object.GetName())
	case "CustomResourceDefinition", "Namespace":
		return false
	}
	return true
}

// conditionTypes returns the types of an object's conditions.
func conditionTypes(object *unstructured.Unstructured) []string {
	var types []string
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		if fields, isMap := condition.(map[string]any); isMap {
			kind, _ := fields["type"].(string)
			types = append(types, kind)
		}
	}
	return types
}
