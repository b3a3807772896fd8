package previews

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/pinned"
)

const (
	repo       = "../.."
	namespace  = cluster.OperatorNamespace
	policyName = "cluster-policy"
)

// world is an API server with the operator, and the user's plugin of kubectl.
type world struct {
	*WithT
	t       *testing.T
	cluster *cluster.Cluster
	client  client.Client
	// operator runs on the cluster.
	operator *cluster.Operator
	// plugin is the user's program, and dir the folder with the programs that it runs, and with files.
	plugin, dir string
}

// programs are the binaries that a world runs.
type programs struct{ operator, plugin, kubectl string }

// build builds the programs.
func build(ctx context.Context) (programs, error) {
	found := programs{}
	_, err := cluster.EnsureBinaries(ctx, "", os.Stderr)
	if err != nil {
		return found, err
	}
	if found.operator, err = cluster.BuildFastOperator(ctx, os.Stderr); err != nil {
		return found, err
	}
	if found.plugin, err = cluster.BuildPlugin(ctx, os.Stderr); err != nil {
		return found, err
	}
	found.kubectl, err = pinned.Tool(repo, "kubectl", "kubectl", "k8s.io/kubectl")
	return found, err
}

// newWorld starts all of it.
func newWorld(t *testing.T, binaries programs) *world {
	t.Helper()
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := cluster.StartFor(t, cluster.Options{Bare: true}, repo+"/config/default")
	w := &world{
		WithT: g, t: t, cluster: c, client: cluster.NewClient(t, c.Config), plugin: binaries.plugin, dir: t.TempDir(),
	}
	g.Expect(os.Symlink(binaries.kubectl, filepath.Join(w.dir, "kubectl"))).To(Succeed())
	kubeconfig, err := c.ServiceAccountKubeconfig(ctx, namespace, "gpu-operator", "")
	g.Expect(err).NotTo(HaveOccurred())
	running, err := cluster.StartOperator(ctx, cluster.OperatorOptions{
		Binary: binaries.operator, Kubeconfig: kubeconfig, LogFile: filepath.Join(w.dir, "operator.log"),
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(running.Stop()).To(Succeed()) })
	w.operator = running
	return w
}

// in returns the world for a subtest.
func (w *world) in(t *testing.T) *world {
	view := *w
	view.t, view.WithT = t, NewWithT(t)
	return &view
}

// printed is what the plugin printed.
type printed struct {
	code        int
	out, errOut string
}

// run runs the plugin with a file on its standard input.
func (w *world) run(in string, args ...string) printed {
	w.t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(w.t.Context(), w.plugin, args...)
	cmd.Env = []string{"KUBECONFIG=" + w.cluster.Kubeconfig(), "HOME=" + w.dir, "PATH=" + w.dir}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.Expect(err).NotTo(HaveOccurred())
	}
	return printed{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// writeAll writes the objects of an edit while the operator does not run, as it would otherwise follow a part of them:
// a preview is one of the whole edit.
func (w *world) writeAll(objects []*unstructured.Unstructured) {
	w.t.Helper()
	w.operator.Freeze()
	defer w.operator.Thaw()
	for _, one := range objects {
		w.Expect(w.write(one)).To(Succeed())
	}
}

// stackKinds are those of the stack's objects on a cluster without the Prometheus operator.
var stackKinds = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "DaemonSet"}, {Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "Service"}, {Group: "node.k8s.io", Version: "v1", Kind: "RuntimeClass"},
}

// objects are those of the stack by kind and name.
type objects map[string]*unstructured.Unstructured

// stack returns the objects that the operator has applied.
func (w *world) stack() objects {
	w.t.Helper()
	found := objects{}
	for _, kind := range stackKinds {
		for _, one := range w.list(kind, client.HasLabels{"nvidia.com/gpu-operator.operand"}) {
			found[keyOf(one)] = one
		}
	}
	return found
}

func keyOf(one *unstructured.Unstructured) string { return one.GetKind() + " " + one.GetName() }

func (w *world) list(kind schema.GroupVersionKind, options ...client.ListOption) []*unstructured.Unstructured {
	w.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	w.Expect(w.client.List(context.WithoutCancel(w.t.Context()), list, options...)).To(Succeed())
	var found []*unstructured.Unstructured
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return found
}

// writeOption is an option of a creation or an update.
type writeOption interface {
	client.CreateOption
	client.UpdateOption
}

// write creates an object, or replaces the spec, the data or the value of the one that exists.
func (w *world) write(one *unstructured.Unstructured, dryRun ...writeOption) error {
	w.t.Helper()
	one = one.DeepCopy()
	creation := []client.CreateOption{client.FieldValidation("Strict")}
	update := []client.UpdateOption{client.FieldValidation("Strict")}
	for _, option := range dryRun {
		creation, update = append(creation, option), append(update, option)
	}
	err := w.client.Create(w.t.Context(), one, creation...)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	live := object(one.GetAPIVersion(), one.GetKind(), one.GetName())
	live.SetNamespace(one.GetNamespace())
	w.Expect(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(one), live)).To(Succeed())
	one.SetResourceVersion(live.GetResourceVersion())
	one.SetFinalizers(live.GetFinalizers())
	return w.client.Update(w.t.Context(), one, update...)
}

// policy returns the live policy.
func (w *world) policy() *unstructured.Unstructured {
	w.t.Helper()
	live := object(v1.GroupVersion.String(), v1.ClusterPolicyKind.Kind, policyName)
	w.Expect(w.client.Get(w.t.Context(), client.ObjectKey{Name: policyName}, live)).To(Succeed())
	return live
}

// observed waits until the operator has reported about the present spec.
func (w *world) observed() {
	w.t.Helper()
	w.Eventually(func() int64 {
		live := w.policy()
		seen, _, _ := unstructured.NestedInt64(live.Object, "status", "observedGeneration")
		return live.GetGeneration() - seen
	}).Should(BeZero(), "the operator has not observed the policy")
}

// settled waits until the operator has nothing left to do, and returns the stack: the stack and the labels of the nodes
// are the same before and after it has observed an edit that changes no object.
func (w *world) settled() objects {
	w.t.Helper()
	w.observed()
	for range 30 {
		before := w.revisions()
		w.editPolicy(func(live *unstructured.Unstructured) {
			path := []string{"spec", "driver", "upgradePolicy", "maxParallelUpgrades"}
			now, _, _ := unstructured.NestedInt64(live.Object, path...)
			w.Expect(unstructured.SetNestedField(live.Object, 70+(now+1)%7, path...)).To(Succeed())
		})
		w.observed()
		if w.isRetrying() && w.stopsRetrying() {
			continue
		}
		if w.revisions() == before {
			return w.stack()
		}
	}
	w.t.Fatal("the operator does not come to rest")
	return nil
}

// stopsRetrying waits until the operator no longer retries, and reports whether that was within a minute. It retries
// where the API server did not answer in time, as on a busy machine: such a pass has observed the policy, but not
// applied it.
func (w *world) stopsRetrying() bool {
	err := wait.PollUntilContextTimeout(w.t.Context(), 100*time.Millisecond, time.Minute, false,
		func(context.Context) (bool, error) { return !w.isRetrying(), nil })
	return err == nil
}

// isRetrying reports whether a call of the operator has failed for the policy or one of its operands.
func (w *world) isRetrying() bool {
	w.t.Helper()
	status, _, _ := unstructured.NestedMap(w.policy().Object, "status")
	for _, list := range []string{"conditions", "operands"} {
		all, _, _ := unstructured.NestedSlice(status, list)
		for _, one := range all {
			if of, isMap := one.(map[string]any); isMap && of["reason"] == v1.ReasonReconcileFailed {
				return true
			}
		}
	}
	return false
}

// editPolicy changes the live policy.
func (w *world) editPolicy(change func(*unstructured.Unstructured)) {
	w.t.Helper()
	w.Eventually(func() error {
		live := w.policy()
		change(live)
		return w.client.Update(w.t.Context(), live)
	}).Should(Succeed())
}

// revisions identifies the stack and the labels of the nodes, without the record of the spec that was applied.
func (w *world) revisions() string {
	w.t.Helper()
	state := map[string]any{}
	for key, one := range w.stack() {
		state[key] = withoutServerFields(one)
	}
	for _, node := range w.list(schema.GroupVersionKind{Version: "v1", Kind: "Node"}) {
		state["Node "+node.GetName()] = node.GetLabels()
	}
	text, err := json.Marshal(state)
	w.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

func (w *world) delete(ctx context.Context, one *unstructured.Unstructured) {
	w.t.Helper()
	w.Expect(client.IgnoreNotFound(w.client.Delete(ctx, one, client.GracePeriodSeconds(0)))).To(Succeed())
}

// inNamespace returns a copy of an object that policies name, in the operator's namespace.
func inNamespace(one *unstructured.Unstructured) *unstructured.Unstructured {
	one = one.DeepCopy()
	if one.GetKind() != "PriorityClass" {
		one.SetNamespace(namespace)
	}
	return one
}

// written returns the result of creating an object: with the API server's defaults, and without what it gives each
// object that is created.
func (w *world) written(one *unstructured.Unstructured) map[string]any {
	w.t.Helper()
	made := one.DeepCopy()
	w.Expect(w.client.Create(w.t.Context(), made, client.DryRunAll)).To(Succeed(), keyOf(one))
	return withoutServerFields(made)
}

// withoutServerFields returns what of an object follows from what was applied: not what the API server gives each
// object, nor what a first installation cannot print, as kubectl gpu render --help has it.
func withoutServerFields(one *unstructured.Unstructured) map[string]any {
	one = one.DeepCopy()
	for _, field := range []string{
		"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences",
	} {
		unstructured.RemoveNestedField(one.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(one.Object, "status")
	for _, field := range []string{"clusterIP", "clusterIPs"} {
		if value, _, _ := unstructured.NestedFieldNoCopy(one.Object, "spec", field); value != "None" {
			unstructured.RemoveNestedField(one.Object, "spec", field)
		}
	}
	ports, _, _ := unstructured.NestedSlice(one.Object, "spec", "ports")
	for _, port := range ports {
		fields, _ := port.(map[string]any)
		delete(fields, "nodePort")
	}
	if len(ports) > 0 {
		_ = unstructured.SetNestedSlice(one.Object, ports, "spec", "ports")
	}
	unstructured.RemoveNestedField(one.Object, "spec", "healthCheckNodePort")
	annotations := one.GetAnnotations()
	for _, key := range []string{
		"nvidia.com/gpu-operator.digest", "nvidia.com/gpu-operator.applied-spec",
		"deprecated.daemonset.template.generation",
	} {
		delete(annotations, key)
	}
	one.SetAnnotations(annotations)
	return one.Object
}
