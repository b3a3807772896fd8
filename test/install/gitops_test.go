package install

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// TestArgoCDDeletesThePolicyFirst plays the waves by which Argo CD applies what the chart renders, and deletes it in
// reverse: each once the objects of the wave before it are gone. In the foreground, its default, nothing is deleted.
func TestArgoCDDeletesThePolicyFirst(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, 2)
	restored := cluster.Restored(t, e.cluster.Config)
	in := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	e.Expect(e.client.Create(t.Context(), in)).To(Succeed())
	objects, err := packaged.Decode(e.helm("template", release, chart, "--include-crds"))
	e.Expect(err).NotTo(HaveOccurred())
	objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return object.GetKind() == "Deployment" || object.GetAnnotations()["helm.sh/hook"] != ""
	})
	waves := map[string][]*unstructured.Unstructured{}
	for _, object := range objects {
		wave := object.GetAnnotations()["argocd.argoproj.io/sync-wave"]
		waves[wave] = append(waves[wave], object)
	}
	e.Expect(waves).To(And(HaveLen(2), HaveKeyWithValue("1", ConsistOf(HaveField("GetKind()", "ClusterPolicy")))))
	e.Expect(cluster.InstallObjects(t.Context(), e.cluster.Config, waves[""])).To(Succeed())
	e.run(namespace)
	e.Expect(cluster.InstallObjects(t.Context(), e.cluster.Config, waves["1"])).To(Succeed())
	e.awaitReady()

	err = e.client.Delete(t.Context(), e.policy(), client.PropagationPolicy(metav1.DeletePropagationForeground))
	e.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	e.Expect(e.client.Delete(t.Context(), e.policy(), background)).To(Succeed())
	e.Eventually(e.policy).WithTimeout(time.Minute).Should(BeNil())
	e.stop()
	for _, object := range waves[""] {
		e.Expect(client.IgnoreNotFound(e.client.Delete(t.Context(), object, background))).To(Succeed())
	}
	e.kubectl("delete", "namespace", namespace)
	restored()
}
