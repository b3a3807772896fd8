package neighbour_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/takeover/neighbour"
)

const namespace = "gpu-operator"

// podOf is a running pod of a DaemonSet with these labels and containers.
func podOf(labels map[string]string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "plugin-x7k2p", Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "plugin", Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "a", Containers: containers},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// known are the pods of public charts and manifests, and of cloud providers.
var known = map[string]struct {
	pod  *corev1.Pod
	want neighbour.Kind
}{
	"the manifest of NVIDIA's device plugin": {
		podOf(map[string]string{"name": "nvidia-device-plugin-ds"}, corev1.Container{
			Name: "nvidia-device-plugin-ctr", Image: "nvcr.io/nvidia/k8s-device-plugin:v0.17.1",
		}), neighbour.DevicePlugin,
	},
	"the chart of NVIDIA's device plugin": {
		podOf(map[string]string{"app.kubernetes.io/name": "nvidia-device-plugin", "app.kubernetes.io/instance": "nvdp"},
			corev1.Container{
				Name: "nvidia-device-plugin-ctr", Image: "nvcr.io/nvidia/k8s-device-plugin:v0.17.1",
				Command: []string{"nvidia-device-plugin"},
			}), neighbour.DevicePlugin,
	},
	"its GPU Feature Discovery": {
		podOf(map[string]string{"app.kubernetes.io/name": "gpu-feature-discovery"}, corev1.Container{
			Name: "gpu-feature-discovery-ctr", Image: "nvcr.io/nvidia/k8s-device-plugin:v0.17.1",
			Command: []string{"gpu-feature-discovery"},
		}), neighbour.FeatureDiscovery,
	},
	"the chart of the DRA driver": {
		podOf(map[string]string{"app.kubernetes.io/name": "dra-driver-nvidia-gpu"},
			corev1.Container{Name: "compute-domains", Image: "x/dra-driver-nvidia-gpu:v0.4.1", Command: []string{"bash", "-c"},
				Args: []string{"compute-domain-kubelet-plugin -v 4"}},
			corev1.Container{Name: "gpus", Image: "x/dra-driver-nvidia-gpu:v0.4.1", Command: []string{"bash", "-c"},
				Args: []string{"gpu-kubelet-plugin -v 4"}},
		), neighbour.DRADriver,
	},
	"the DRA driver of NVIDIA's operator": {
		podOf(map[string]string{"app": "nvidia-dra-driver-kubelet-plugin"}, corev1.Container{
			Name: "gpus", Image: "mirror.local/x@sha256:00", Command: []string{"bash", "-c", "gpu-kubelet-plugin -v 4"},
		}), neighbour.DRADriver,
	},
	"a DRA driver for compute domains only": {
		podOf(map[string]string{"app.kubernetes.io/name": "dra-driver-nvidia-gpu"}, corev1.Container{
			Name: "compute-domains", Image: "x/dra-driver-nvidia-gpu:v0.4.1", Command: []string{"bash", "-c"},
			Args: []string{"compute-domain-kubelet-plugin -v 4"},
		}), "",
	},
	"its MPS control daemon": {
		podOf(map[string]string{"app.kubernetes.io/name": "nvidia-device-plugin"}, corev1.Container{
			Name: "mps-control-daemon-ctr", Image: "nvcr.io/nvidia/k8s-device-plugin:v0.17.1",
			Command: []string{"mps-control-daemon"},
		}), "",
	},
	"a sidecar first": {
		podOf(map[string]string{"app.kubernetes.io/name": "nvidia-device-plugin"},
			corev1.Container{Name: "nvidia-device-plugin-sidecar", Image: "x", Command: []string{"config-manager"}},
			corev1.Container{Name: "main", Image: "mirror.local:5000/x/k8s-device-plugin@sha256:00"},
		), neighbour.DevicePlugin,
	},
	"GKE's device plugin": {
		podOf(map[string]string{"k8s-app": "nvidia-gpu-device-plugin"}, corev1.Container{
			Name: "nvidia-gpu-device-plugin", Image: "gke.gcr.io/nvidia-gpu-device-plugin@sha256:00",
			Command: []string{"/usr/bin/nvidia-gpu-device-plugin", "-logtostderr"},
		}), neighbour.DevicePlugin,
	},
	"HAMi": {
		podOf(map[string]string{"app.kubernetes.io/component": "hami-device-plugin", "app.kubernetes.io/name": "hami"},
			corev1.Container{
				Name: "device-plugin", Image: "projecthami/hami:v2.6.1",
				Command: []string{"nvidia-device-plugin", "--config-file=/config/config.yaml"},
			}), neighbour.DevicePlugin,
	},
	"the chart of the DCGM exporter": {
		podOf(map[string]string{"app.kubernetes.io/name": "dcgm-exporter"}, corev1.Container{
			Name: "exporter", Image: "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.3-4.1.3-ubuntu22.04",
		}), neighbour.Exporter,
	},
	"GKE's DCGM exporter": {
		podOf(map[string]string{"app.kubernetes.io/name": "gke-managed-dcgm-exporter"}, corev1.Container{
			Name: "dcgm-exporter", Image: "gke.gcr.io/nvidia/exporter:3",
			Command: []string{"/bin/bash", "-c"},
		}), neighbour.Exporter,
	},
	"a host engine": {
		podOf(map[string]string{"app": "nvidia-dcgm"}, corev1.Container{
			Name: "nvidia-dcgm-ctr", Image: "nvcr.io/nvidia/cloud-native/dcgm:4.2.3-1-ubuntu22.04",
		}), neighbour.HostEngine,
	},
	"what is left of NVIDIA's operator in another namespace": {
		podOf(map[string]string{"app": "nvidia-device-plugin-daemonset", "app.kubernetes.io/managed-by": "gpu-operator"},
			corev1.Container{
				Name: "nvidia-device-plugin", Image: "nvcr.io/nvidia/k8s-device-plugin:v0.17.1",
				Command: []string{"/bin/bash", "-c"},
			}), neighbour.DevicePlugin,
	},
	"something else that is called so": {
		podOf(map[string]string{"app": "dcgm-exporter"}, corev1.Container{
			Name: "web", Image: "docker.io/library/nginx:1", Command: []string{"nginx"},
		}), "",
	},
}

// Charts, manifests and clouds are recognised by their labels and by what their containers run.
func TestNeighboursAreRecognised(t *testing.T) {
	selectors, err := neighbour.Selectors()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, test := range known {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			selected := false
			for _, selector := range selectors {
				selected = selected || selector.Matches(k8slabels.Set(test.pod.Labels))
			}
			g.Expect(selected).To(BeTrue(), "its pods are listed")
			found, is := neighbour.Of(test.pod, namespace)
			g.Expect(is).To(Equal(test.want != ""))
			if is {
				g.Expect(found).To(Equal(neighbour.Neighbour{Kind: test.want, Workload: "DaemonSet kube-system/plugin"}))
			}
		})
	}
}

// What belongs to an operator in this namespace, and what does not run, is no neighbour.
func TestPodsThatAreNoNeighbours(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"of an operand": func(pod *corev1.Pod) { pod.Labels["nvidia.com/gpu-operator.operand"] = "device-plugin" },
		"of NVIDIA's operator, to be taken over": func(pod *corev1.Pod) {
			pod.Namespace, pod.Labels["app.kubernetes.io/managed-by"] = namespace, "gpu-operator"
		},
		"not scheduled": func(pod *corev1.Pod) { pod.Spec.NodeName = "" },
		"being deleted": func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{} },
		"failed":        func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed },
		"succeeded":     func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pod := podOf(map[string]string{"app": "nvidia-device-plugin-daemonset"}, corev1.Container{
				Name: "main", Command: []string{"nvidia-device-plugin"},
			})
			_, is := neighbour.Of(pod, namespace)
			g.Expect(is).To(BeTrue(), "before the change")
			change(pod)
			_, is = neighbour.Of(pod, namespace)
			g.Expect(is).To(BeFalse())
		})
	}
}

// None of the pods that the operator installs is listed: that would cost memory on every cluster.
func TestOperandsAreNotListed(t *testing.T) {
	g := NewWithT(t)
	selectors, err := neighbour.Selectors()
	g.Expect(err).NotTo(HaveOccurred())
	for _, test := range known {
		own := k8slabels.Set{"nvidia.com/gpu-operator.operand": "some"}
		for key, value := range test.pod.Labels {
			own[key] = value
		}
		for _, selector := range selectors {
			g.Expect(selector.Matches(own)).To(BeFalse(), selector.String())
		}
	}
}

// A node has each workload once, device plugins first.
func TestOnNodes(t *testing.T) {
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"the chart of the DCGM exporter", "GKE's device plugin"} {
		pods[name] = known[name].pod.DeepCopy()
		pods[name].OwnerReferences[0].Name = string(known[name].want[:4])
	}
	bare := known["HAMi"].pod.DeepCopy()
	bare.OwnerReferences, bare.Spec.NodeName = nil, "b"
	found := neighbour.OnNodes{}
	for _, pod := range []*corev1.Pod{
		pods["the chart of the DCGM exporter"], pods["GKE's device plugin"], pods["GKE's device plugin"], bare,
	} {
		found.Add(pod, namespace)
	}
	want := neighbour.OnNodes{
		"a": {
			{Kind: neighbour.DevicePlugin, Workload: "DaemonSet kube-system/devi"},
			{Kind: neighbour.Exporter, Workload: "DaemonSet kube-system/DCGM"},
		},
		"b": {{Kind: neighbour.DevicePlugin, Workload: "Pod kube-system/plugin-x7k2p"}},
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The rivals are operands of the catalogue, and their fields turn them off.
func TestRivalsAreOperands(t *testing.T) {
	g := NewWithT(t)
	catalogue, err := operands.Catalogue()
	g.Expect(err).NotTo(HaveOccurred())
	in := operand.Input{Spec: effective.Of(v1.ClusterPolicySpec{})}
	for _, kind := range []neighbour.Kind{
		neighbour.DevicePlugin, neighbour.FeatureDiscovery, neighbour.Exporter, neighbour.HostEngine,
	} {
		g.Expect(kind.Rivals()).NotTo(BeEmpty(), string(kind))
		for _, rival := range kind.Rivals() {
			o, isOperand := catalogue.Find(rival.Operand)
			g.Expect(isOperand).To(BeTrue(), string(rival.Operand))
			g.Expect(rival.Field).To(Equal(in.PlacementOf(o).Field + ".enabled"))
		}
	}
}

// An owner of an unknown kind may have a name of any length; what is kept of it is bounded.
func TestLongNamesOfOwners(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "p", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: "Any", Name: strings.Repeat("<", 50_000), UID: "1", Controller: new(true)},
		},
	}}
	pod.Spec.NodeName, pod.Spec.Containers = "a", []corev1.Container{{Name: "dcgm-exporter", Image: "dcgm-exporter:1"}}
	found, is := neighbour.Of(pod, "gpu-operator")
	NewWithT(t).Expect(is).To(BeTrue())
	NewWithT(t).Expect(found.Workload).To(And(HavePrefix("Any n/<"), HaveLen(400)))
}
