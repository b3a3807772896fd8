package upgrade

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// The pod that pulls images is removed with its DaemonSet, has each image once with the pull secrets, and may do
// nothing.
func TestPodThatPullsImages(t *testing.T) {
	g := NewWithT(t)
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Name: "driver", UID: "7", Annotations: map[string]string{labels.TemplateDigest: "digest", "other": "x"},
	}}
	template := &ds.Spec.Template.Spec
	template.ServiceAccountName, template.HostPID = "account", true
	template.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "secret"}}
	template.InitContainers = []corev1.Container{{Name: "manager", Image: "manager:1"}}
	template.Containers = []corev1.Container{
		{Name: "driver", Image: "driver:1", ImagePullPolicy: corev1.PullAlways, SecurityContext: &corev1.SecurityContext{
			Privileged: new(true),
		}},
		{Name: "peermem", Image: "driver:1"},
	}
	pod := pullPod("ns", "a", ds)
	g.Expect(pod.ObjectMeta).To(Equal(metav1.ObjectMeta{
		Namespace: "ns", Name: PullPodName("a"),
		Labels:      map[string]string{labels.ManagedBy: labels.ManagedByValue, labels.DriverPull: "true"},
		Annotations: map[string]string{labels.TemplateDigest: "digest"},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "driver", UID: "7"},
		},
	}))
	g.Expect(pod.Name).To(MatchRegexp("^gpu-operator-driver-pull-[0-9a-z]+$"))
	g.Expect(isPull(pod, "a")).To(BeTrue())
	g.Expect(isPull(pod, "b")).To(BeFalse())
	for _, key := range []string{labels.ManagedBy, labels.DriverPull} {
		other := pod.DeepCopy()
		delete(other.Labels, key)
		g.Expect(isPull(other, "a")).To(BeFalse(), key)
	}
	g.Expect(pod.Spec.NodeName).To(Equal("a"))
	g.Expect(pod.Spec.RestartPolicy).To(Equal(corev1.RestartPolicyNever))
	g.Expect(pod.Spec.ServiceAccountName).To(Equal("account"))
	g.Expect(pod.Spec.ImagePullSecrets).To(Equal(template.ImagePullSecrets))
	g.Expect(pod.Spec.Tolerations).To(Equal([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}))
	g.Expect(*pod.Spec.AutomountServiceAccountToken || *pod.Spec.EnableServiceLinks || pod.Spec.HostPID).To(BeFalse())
	g.Expect(*pod.Spec.TerminationGracePeriodSeconds).To(Equal(int64(1)))
	g.Expect(*pod.Spec.SecurityContext).To(Equal(corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(65534)), RunAsGroup: new(int64(65534)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}))
	pulls := func(name, image string, policy corev1.PullPolicy) corev1.Container {
		return corev1.Container{
			Name: name, Image: image, ImagePullPolicy: policy, Command: []string{"true"},
			Env: []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}
	}
	g.Expect(pod.Spec.Containers).To(Equal([]corev1.Container{
		pulls("manager", "manager:1", ""), pulls("driver", "driver:1", corev1.PullAlways),
	}))
}
