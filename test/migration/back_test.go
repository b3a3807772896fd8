package migration

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

// TestBack: NVIDIA's operator takes the stack back, after the steps that docs/migration.md has for this one.
func TestBack(t *testing.T) {
	t.Parallel()
	e := newEnv(t, "24.04")
	e.install()
	e.start()
	e.awaitPods(true)
	e.awaitReady()

	e.operator.Kill()
	e.Expect(e.client.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "gpu-operator",
	}})).To(Succeed())
	e.Expect(cluster.DropFinalizers(t.Context(), e.client, e.policy())).To(Succeed())
	e.watch = NewWatcher(t, e.cluster.SimulatorConfig)
	e.Expect(e.theirs.Reconcile(t.Context(), e.policy())).To(Succeed())
	e.awaitPods(false)
	e.undisturbed()
	list := &appsv1.DaemonSetList{}
	e.Expect(e.client.List(t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	for i := range list.Items {
		e.Expect(list.Items[i].Annotations).To(HaveKey(hashAnnotation), "no DaemonSet is left")
	}
	script := client.ObjectKey{Namespace: namespace, Name: probeScript}
	e.Expect(e.client.Get(t.Context(), script, &corev1.ConfigMap{})).To(Succeed())
}
