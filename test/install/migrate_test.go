package install

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/migration"
)

// nvidiasObjects are what an installation of NVIDIA's operator has, beside nfdObjects: the operator with its rights,
// and its policy.
const nvidiasObjects = `apiVersion: apps/v1
kind: Deployment
metadata: {name: gpu-operator, labels: {app.kubernetes.io/component: gpu-operator}}
spec:
  selector: {matchLabels: {app: gpu-operator, app.kubernetes.io/component: gpu-operator}}
  template:
    metadata: {labels: {app: gpu-operator, app.kubernetes.io/component: gpu-operator}}
    spec:
      serviceAccountName: gpu-operator
      containers: [{name: gpu-operator, image: "nvcr.io/nvidia/gpu-operator:v26.7.0"}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: gpu-operator}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: gpu-operator}
rules: [{apiGroups: [""], resources: [nodes], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: gpu-operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: gpu-operator}
subjects: [{kind: ServiceAccount, name: gpu-operator, namespace: gpu-operator}]
---
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: cluster-policy}
spec:
  driver: {repository: nvcr.io/nvidia, image: driver, version: 580.95.05}
  validator: {repository: nvcr.io/nvidia, image: gpu-operator, version: v26.7.0}
`

const (
	nvidiasDriver = "nvcr.io/nvidia/driver:580.95.05-ubuntu24.04"
	tenant        = "training"
	migratedNodes = 2
)

// migrationWay is a way from NVIDIA's operator to this one.
type migrationWay struct {
	// byOLM: NVIDIA's operator was installed by OLM, and by Helm otherwise.
	byOLM bool
	// typed: a user has set labels that look like those of the stack, which stay, among them one by a NodeFeatureRule.
	typed bool
	// handsOver: node discovery replaces Node Feature Discovery, of which NFD's own programs run.
	handsOver bool
	// install and remove do what docs/migration.md and docs/install.md say, the former without a policy.
	install, remove func(*env)
}

// TestMigrateOverTheRelease upgrades the release of NVIDIA's chart to this one.
func TestMigrateOverTheRelease(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	migrate(t, migrationWay{
		typed: true,
		install: func(e *env) {
			e.helm("upgrade", release, chart, "--no-hooks", "--take-ownership", "--force-conflicts", "--set",
				"clusterPolicy.deployCR=false,operator.nodeSelector.pool=none")
		},
		remove: (*env).removeByHelm,
	})
}

// TestMigrateByKubectl leaves Helm for kustomize, and Node Feature Discovery for node discovery.
func TestMigrateByKubectl(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	migrate(t, migrationWay{
		typed: true, handsOver: true,
		install: func(e *env) { e.make("deploy", "IMG=registry.example.com/gpu-operator:v1.2.3") },
		remove:  func(e *env) { e.make("undeploy"); e.stop() },
	})
}

// TestMigrateWithOLM plays OLM: it removes the objects of NVIDIA's operator, and creates those of the bundle.
func TestMigrateWithOLM(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	objects, err := openBundle(NewWithT(t)).Objects(namespace)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	migrate(t, migrationWay{
		byOLM: true,
		install: func(e *env) {
			for _, some := range [][]*unstructured.Unstructured{objects, admissionManifest(e.WithT)} {
				e.Expect(cluster.InstallObjects(e.t.Context(), e.cluster.Config, some)).To(Succeed())
			}
			for _, object := range objects {
				if object.GetKind() == "Deployment" {
					e.Expect(e.client.Create(e.t.Context(), object.DeepCopy())).To(Succeed())
				}
			}
		},
		remove: func(e *env) { e.removeAsDocumented(namespace, objects) },
	})
}

// migrate goes from NVIDIA's operator to this one with kubectl gpu migrate, while everything runs, and removes this one
// afterwards.
func migrate(t *testing.T, way migrationWay) {
	t.Helper()
	e := newEnv(t, migratedNodes)
	e.labelByNFD(way.typed)
	if way.handsOver {
		e.unlabel()
	}
	restored := cluster.Restored(t, e.cluster.Config)
	deleteDiscovery, endNFD := e.installNVIDIAs(way)
	pods, labels := migration.NewWatcher(t, e.cluster.Config), e.watchLabels()

	e.checks(way.byOLM)
	e.migrates("--yes")
	e.Expect(e.migrates("--yes")).To(Equal("Nothing is left to do.\n"))
	uid := e.policy().UID
	way.install(e)
	e.run(namespace)
	e.awaitTakeOver()
	e.Expect(e.policy().UID).To(Equal(uid), "the policy stays")
	e.Expect(e.policy().Spec.Driver.Version).To(Equal("580.95.05"))
	e.migrates("--finish", "--yes")
	e.Expect(e.migrates("--finish", "--yes")).To(Equal("Nothing is left to do.\n"))

	e.undisturbed(pods)
	if way.handsOver {
		e.handsOver()
	}
	if way.byOLM {
		out, err := e.kubectlGPU("", "migrate", "--finish", "--node-discovery", "--yes")
		e.Expect(err).To(HaveOccurred(), out)
		e.Expect(out).To(ContainSubstring("has not found in NVIDIA's chart"))
	}
	e.awaitReady()
	e.Expect(labels()).To(BeEmpty(), "labels of Node Feature Discovery that were missing at some time")
	e.Eventually(e.leftovers).WithTimeout(time.Minute).Should(BeEmpty())
	endNFD()
	if way.handsOver {
		e.forgetsLabels()
	} else {
		deleteDiscovery()
	}
	e.kubectl("delete", "daemonset", tenant, "--namespace", "default")
	way.remove(e)
	restored()
}

// installNVIDIAs installs NVIDIA's operator, plays it, and awaits that its stack and a GPU pod on each node run. It
// returns what deletes Node Feature Discovery, and what ends its programs.
func (e *env) installNVIDIAs(way migrationWay) (deleteDiscovery, endNFD func()) {
	e.t.Helper()
	ctx := e.t.Context()
	definition := find(kustomize(e.t), "CustomResourceDefinition", "clusterpolicies.nvidia.com")
	e.Expect(cluster.InstallObjects(ctx, e.cluster.Config, []*unstructured.Unstructured{definition})).To(Succeed())
	dir := e.t.TempDir()
	manifests := filepath.Join(dir, "templates", "all.yaml")
	e.Expect(os.MkdirAll(filepath.Dir(manifests), 0o700)).To(Succeed())
	e.Expect(os.WriteFile(manifests, []byte(nvidiasObjects), 0o600)).To(Succeed())
	e.Expect(os.WriteFile(filepath.Join(dir, "Chart.yaml"),
		[]byte("{apiVersion: v2, name: gpu-operator, version: v26.7.0}"), 0o600)).To(Succeed())
	keep, startNFD := "", e.playNFD
	if way.handsOver {
		keep, startNFD = podKept, e.runNFD
	}
	definitions, nfd := e.writeNFD(dir, keep)
	if way.byOLM {
		e.kubectl("create", "namespace", namespace)
		e.kubectl("create", "-f", definitions)
		e.kubectl("create", "--namespace", namespace, "-f", manifests, "-f", nfd)
		e.kubectl("label", "deployment", "gpu-operator", "--namespace", namespace, "olm.owner=gpu-operator-certified.v26.7.0")
	} else {
		e.helm("install", release, dir, "--create-namespace")
	}
	endNFD = startNFD()
	player := migration.NewPlayer(e.client, namespace, nvidiasDriver)
	e.Expect(player.Reconcile(ctx, e.policy())).To(Succeed())
	e.deployTenant()
	e.awaitPods()
	return func() { e.kubectl("delete", "--namespace", namespace, "-f", nfd, "-f", definitions) }, endNFD
}

// deployTenant runs a pod with a GPU on each node.
func (e *env) deployTenant() {
	e.t.Helper()
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: tenant}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": tenant}}
	ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
	ds.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "main", Image: "registry.example.com/training",
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
	}}
	e.Expect(e.client.Create(e.t.Context(), ds)).To(Succeed())
}

// awaitPods waits until each DaemonSet has ready pods, all but drivers of its current template.
func (e *env) awaitPods() {
	e.t.Helper()
	e.Eventually(func(g Gomega) {
		sets := append(e.daemonSetsOf(namespace), e.daemonSetsOf("default")...)
		g.Expect(sets).To(ContainElement(HaveField("Name", migration.DriverName)))
		for i := range sets {
			ds := &sets[i]
			status := &ds.Status
			g.Expect(status.ObservedGeneration).To(Equal(ds.Generation), ds.Name)
			g.Expect(status.DesiredNumberScheduled).To(BeElementOf(int32(0), int32(migratedNodes)), ds.Name)
			g.Expect(status.NumberReady).To(Equal(status.DesiredNumberScheduled), ds.Name)
			if ds.Name == migration.DriverName || ds.Name == tenant {
				g.Expect(status.NumberReady).To(Equal(int32(migratedNodes)), ds.Name)
				continue
			}
			g.Expect(status.UpdatedNumberScheduled).To(Equal(status.DesiredNumberScheduled), ds.Name)
		}
	}).WithTimeout(4 * time.Minute).WithPolling(100 * time.Millisecond).Should(Succeed())
}

// checks checks the report, and that --finish refuses. Then OLM no longer runs NVIDIA's operator.
func (e *env) checks(byOLM bool) {
	e.t.Helper()
	_, err := e.kubectlGPU("", "migrate", "--finish", "--yes")
	e.Expect(err).To(HaveOccurred(), "NVIDIA's operator still runs")
	if byOLM {
		out, err := e.kubectlGPU("", "migrate", "--check")
		e.Expect(err).To(HaveOccurred(), out)
		e.Expect(out).To(ContainSubstring("kubectl delete subscription,clusterserviceversion"))
		for _, kind := range []string{"deployment", "serviceaccount", "clusterrole", "clusterrolebinding"} {
			e.kubectl("delete", kind, "gpu-operator", "--namespace", namespace)
		}
	}
	out := e.migrates("--check", "-o", "json")
	report := map[string]any{}
	e.Expect(json.Unmarshal([]byte(out), &report)).To(Succeed(), out)
	e.Expect(report).To(And(HaveKeyWithValue("policy", "cluster-policy"), HaveKeyWithValue("blockers", BeEmpty())), out)
	e.Expect(report["operands"]).To(And(
		ContainElement(And(HaveKeyWithValue("daemonSet", migration.DriverName), HaveKeyWithValue("effect", "kept"),
			HaveKeyWithValue("pods", float64(migratedNodes)))),
		ContainElement(And(HaveKeyWithValue("daemonSet", "nvidia-device-plugin-daemonset"),
			HaveKeyWithValue("effect", "replaced once"))),
	), out)
}

// awaitTakeOver waits until each DaemonSet is this operator's, with pods of its template, and the policy is ready.
func (e *env) awaitTakeOver() {
	e.t.Helper()
	e.Eventually(func() []string {
		var theirs []string
		for _, ds := range e.daemonSetsOf(namespace) {
			if ds.Annotations["nvidia.com/last-applied-hash"] != "" {
				theirs = append(theirs, ds.Name)
			}
		}
		return theirs
	}).WithTimeout(4 * time.Minute).WithPolling(100 * time.Millisecond).Should(BeEmpty())
	e.awaitPods()
	e.awaitReady()
}

// undisturbed: no driver, no GPU pod and none of Node Feature Discovery has ended, and of every other operand at most
// one pod on each node.
func (e *env) undisturbed(pods *migration.Watcher) {
	e.t.Helper()
	e.Expect(pods.Err()).NotTo(HaveOccurred())
	e.Expect(pods.Apps()).To(And(HaveKey(tenant), HaveKey(migration.DriverName), HaveKey("nfd-worker"),
		HaveKey("nfd-master"), HaveKey("nfd-gc")))
	for app := range pods.Apps() {
		ended := pods.EndedOn(app)
		switch app {
		case migration.DriverName, tenant, "nfd-worker", "nfd-master", "nfd-gc":
			e.Expect(ended).To(BeEmpty(), app)
		case "gpu-operator":
		default:
			for node, times := range ended {
				e.Expect(times).To(Equal(1), "%s on %s", app, node)
			}
		}
	}
}

// leftovers returns the objects that still are of NVIDIA's operator, which belong to the policy without what this one
// writes, or of its release. The script is mounted by running drivers, and goes with the policy.
func (e *env) leftovers() ([]string, error) {
	objects, err := cluster.Objects(e.t.Context(), e.cluster.Config)
	var left []string
	for _, object := range objects {
		name, annotations := object.GetKind()+" "+object.GetName(), object.GetAnnotations()
		ofPolicy := len(object.GetOwnerReferences()) > 0 && object.GetOwnerReferences()[0].Kind == "ClusterPolicy"
		isDiscovery := object.GetLabels()["app.kubernetes.io/name"] == "node-feature-discovery" ||
			object.GetKind() == nodeFeatureRule.Kind
		isMounted := name == "ConfigMap nvidia-driver-startup-probe"
		if ofPolicy && annotations["nvidia.com/gpu-operator.digest"] == "" && !isMounted ||
			!isDiscovery && annotations["helm.sh/resource-policy"] != "" {
			left = append(left, name)
		}
	}
	return left, err
}

// removeByHelm uninstalls the release of this operator while it runs, which leaves the policy that it did not create,
// and then what docs/install.md names.
func (e *env) removeByHelm() {
	e.t.Helper()
	e.kubectl("delete", "clusterpolicy", "--all")
	e.stop()
	e.helm("uninstall", release)
	e.kubectl("delete", "crd", "clusterpolicies.nvidia.com")
	e.kubectl("delete", "namespace", namespace)
}

// migrates runs kubectl gpu migrate, and returns what it prints.
func (e *env) migrates(args ...string) string {
	e.t.Helper()
	out, err := e.kubectlGPU("", append([]string{"migrate"}, args...)...)
	e.Expect(err).NotTo(HaveOccurred(), out)
	return out
}
