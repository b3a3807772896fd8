package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// nvidiaHash is NVIDIA's annotation of what its operator has written.
const nvidiaHash = "nvidia.com/last-applied-hash"

// TestTakesOverNVIDIAsObjects: an object that NVIDIA's operator has written for the same policy becomes this operator's
// as a whole. None of its containers, variables, volumes, labels and annotations is left, and no other manager owns a
// field of it.
func TestTakesOverNVIDIAsObjects(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t, envOptions{nodes: 1, timing: simulator.DefaultTiming().Scale(0.1)})
	e.create(e.samplePolicy())
	for _, object := range e.nvidiasObjects() {
		e.Expect(e.client.Create(t.Context(), object, client.FieldOwner("gpu-operator"))).To(Succeed())
	}
	e.run()
	e.awaitReady(1)

	ds := &appsv1.DaemonSet{}
	e.Expect(e.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "gpu-feature-discovery"}, ds)).To(
		Succeed())
	pod := &ds.Spec.Template.Spec
	e.Expect(ds.Annotations).NotTo(HaveKey(nvidiaHash))
	e.Expect(ds.Labels).NotTo(HaveKey("helm.sh/chart"))
	e.Expect(ds.Spec.Template.Labels).NotTo(HaveKey("helm.sh/chart"))
	e.Expect(pod.InitContainers).NotTo(ContainElement(HaveField("Name", "toolkit-validation")))
	e.Expect(pod.Containers).To(HaveLen(1))
	e.Expect(pod.Containers[0].Env).NotTo(ContainElement(HaveField("Name", "LEFT_BEHIND")))
	e.Expect(pod.Volumes).NotTo(ContainElement(HaveField("Name", "left-behind")))
	e.Expect(updaters(ds)).To(BeEmpty())

	service := &corev1.Service{}
	e.Expect(e.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "nvidia-dcgm-exporter"}, service)).To(
		Succeed())
	e.Expect(service.Annotations).NotTo(HaveKey(nvidiaHash))
	e.Expect(service.Spec.Ports).NotTo(ContainElement(HaveField("Name", "left-behind")))
	e.Expect(updaters(service)).To(BeEmpty())
	e.quietSince("once the objects are taken over", e.mark(), e.idle)
}

// updaters returns the managers that have fields of an object by updates, but of its status.
func updaters(object client.Object) []string {
	var names []string
	for _, entry := range object.GetManagedFields() {
		if entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == "" {
			names = append(names, entry.Manager)
		}
	}
	return names
}

// nvidiasObjects returns objects as NVIDIA's operator writes them for the policy.
func (e *env) nvidiasObjects() []client.Object {
	policy := e.policy()
	meta := func(name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: labels, Annotations: map[string]string{nvidiaHash: "1234"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "nvidia.com/v1", Kind: "ClusterPolicy", Name: policy.Name, UID: policy.UID, Controller: new(true),
				BlockOwnerDeletion: new(true),
			}},
		}
	}
	selector := map[string]string{"app": "gpu-feature-discovery", "app.kubernetes.io/part-of": "nvidia-gpu"}
	labels := map[string]string{
		"app": "gpu-feature-discovery", "app.kubernetes.io/part-of": "nvidia-gpu",
		"app.kubernetes.io/managed-by": "gpu-operator", "helm.sh/chart": "gpu-operator-v1.0.0-devel",
	}
	return []client.Object{
		&appsv1.DaemonSet{
			ObjectMeta: meta("gpu-feature-discovery", labels),
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: selector},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{
						NodeSelector: map[string]string{"nvidia.com/gpu.deploy.gpu-feature-discovery": "true"},
						InitContainers: []corev1.Container{{
							Name: "toolkit-validation", Image: "nvcr.io/nvidia/gpu-operator:v26.3.0",
						}},
						Containers: []corev1.Container{{
							Name: "gpu-feature-discovery", Image: "nvcr.io/nvidia/k8s-device-plugin:v0.18.0",
							Env: []corev1.EnvVar{{Name: "LEFT_BEHIND", Value: "1"}},
							VolumeMounts: []corev1.VolumeMount{{
								Name: "left-behind", MountPath: "/left-behind",
							}},
						}},
						Volumes: []corev1.Volume{{
							Name: "left-behind", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
						}},
					},
				},
			},
		},
		&corev1.Service{
			ObjectMeta: meta("nvidia-dcgm-exporter", map[string]string{"app": "nvidia-dcgm-exporter"}),
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{"app": "nvidia-dcgm-exporter"},
				Ports:    []corev1.ServicePort{{Name: "left-behind", Port: 9500}},
			},
		},
	}
}
