package migration

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestInPlace: this operator takes over what NVIDIA's has left, while everything runs. NVIDIA's then takes it over
// again.
func TestInPlace(t *testing.T) {
	for name, runs := range map[string]stack{
		"one operating system":  ubuntus("24.04"),
		"two operating systems": ubuntus("24.04", "22.04"),
		"NVIDIADriver objects":  nvidiaDrivers(),
		"precompiled drivers":   precompiledDrivers(),
		"OpenShift":             openShift(),
	} {
		t.Run(name, func(t *testing.T) {
			if runs.daemonSets > 1 || name == "OpenShift" {
				cluster.SkipInSample(t)
			}
			t.Parallel()
			e := newEnv(t, runs)
			begin := time.Now()
			e.install()
			e.start()
			e.awaitPods(true)
			e.awaitReady(runs.state())
			t.Logf("taken over after %s", time.Since(begin).Round(time.Second))
			e.undisturbed()
			e.ours()
			e.Expect(e.drivers()).To(HaveLen(runs.daemonSets))
			e.nothingLeft()
			e.writesNothing()
			if runs.back {
				e.back()
			}
		})
	}
}

// undisturbed: no driver and no GPU pod has ended, and of every other operand at most one pod on each node, one at a
// time. Apps that are removed are not considered.
func (e *env) undisturbed(removed ...string) {
	e.t.Helper()
	e.Expect(e.watch.Err()).NotTo(HaveOccurred())
	for app, fewest := range e.watch.Apps() {
		ended := e.watch.EndedOn(app)
		e.t.Logf("%s: never fewer than %d ready, ended %v", app, fewest, ended)
		if slices.Contains(removed, app) {
			continue
		}
		if app == DriverName || app == tenantApp {
			e.Expect(ended).To(BeEmpty(), app)
			e.Expect(fewest).To(Equal(nodes), app)
			continue
		}
		e.Expect(fewest).To(BeNumerically(">=", nodes-1), app)
		for node, times := range ended {
			e.Expect(times).To(BeNumerically("<=", 1), "%s on %s", app, node)
		}
	}
}

// ours: nothing in a DaemonSet is what Player has written, and it owns no field of an object.
func (e *env) ours() {
	e.t.Helper()
	list := &appsv1.DaemonSetList{}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	for i := range list.Items {
		ds := &list.Items[i]
		e.Expect(ds.Labels).NotTo(HaveKey("helm.sh/chart"), ds.Name)
		e.Expect(ds.Spec.Template.Labels).NotTo(HaveKey("helm.sh/chart"), ds.Name)
		for _, container := range ds.Spec.Template.Spec.Containers {
			e.Expect(container.Env).NotTo(ContainElement(HaveField("Name", "THEIRS")), ds.Name)
		}
	}
	e.applied()
}

// applied: no other manager owns a field of any object that this operator has applied.
func (e *env) applied() {
	e.t.Helper()
	objects, err := cluster.Objects(e.t.Context(), e.cluster.SimulatorConfig)
	e.Expect(err).NotTo(HaveOccurred())
	kinds := map[string]int{}
	for _, object := range objects {
		// The DaemonSet controller makes pods and revisions with the labels of DaemonSets.
		kind := object.GetKind()
		if object.GetLabels()["nvidia.com/gpu-operator.operand"] == "" || kind == "Pod" || kind == "ControllerRevision" {
			continue
		}
		kinds[kind]++
		e.Expect(object.GetAnnotations()).NotTo(HaveKey(hashAnnotation), "%s %s", kind, object.GetName())
		for _, entry := range object.GetManagedFields() {
			if entry.Subresource == "" {
				e.Expect(entry.Operation).To(Equal(metav1.ManagedFieldsOperationApply), "%s %s: %s", kind,
					object.GetName(), entry.Manager)
			}
		}
	}
	e.t.Logf("objects without fields of another manager: %v", kinds)
	e.Expect(kinds).To(And(HaveKey("DaemonSet"), HaveKey("Service"), HaveKey("RuntimeClass")))
}

// drivers returns the names of the driver DaemonSets.
func (e *env) drivers() []string {
	e.t.Helper()
	list := &appsv1.DaemonSetList{}
	e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(namespace),
		client.MatchingLabels{component: driverComponent})).To(Succeed())
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// nothingLeft: no ConfigMap of NVIDIA's operator is left, but the script that the running drivers mount.
func (e *env) nothingLeft() {
	e.t.Helper()
	e.Eventually(func() []string {
		list := &corev1.ConfigMapList{}
		e.Expect(e.client.List(e.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
		var left []string
		for i := range list.Items {
			if _, theirs := list.Items[i].Data["theirs"]; theirs {
				left = append(left, list.Items[i].Name)
			}
		}
		return left
	}).Should(BeEmpty())
	script := client.ObjectKey{Namespace: namespace, Name: probeScript}
	e.Expect(e.client.Get(e.t.Context(), script, &corev1.ConfigMap{})).To(Succeed(), "the running drivers mount it")
}

func (e *env) writesNothing() {
	e.t.Helper()
	e.Eventually(func() int {
		mark := e.mark()
		time.Sleep(idle)
		return len(e.calls(mark).Writes())
	}).Should(BeZero())
	mark := e.mark()
	e.Consistently(func() string { return e.calls(mark).Writes().String() }).WithTimeout(2 * idle).
		WithPolling(500 * time.Millisecond).Should(BeEmpty())
}
