package migration

import (
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/simulator"
)

// Labels of node discovery.
const (
	discoveredID      = "feature.node.kubernetes.io/system-os_release.ID"
	discoveredVersion = "feature.node.kubernetes.io/system-os_release.VERSION_ID"
	discoveredRelease = "feature.node.kubernetes.io/system-os_release.OSTREE_VERSION"
	discoveredKernel  = "feature.node.kubernetes.io/kernel-version.full"
)

// stack is what NVIDIA's operator runs.
type stack struct {
	// nodes of these kinds in turn.
	nodes []simulator.NodeSpec
	// driver changes spec.driver of the policy; nil not to.
	driver func(*v1.DriverSpec)
	// drivers returns the driver DaemonSets; nil for the usual one.
	drivers func(*env) []Driver
	// outdated: some drivers are not those that this operator would install.
	outdated bool
	// daemonSets is the number of driver DaemonSets of this operator.
	daemonSets int
	// back: NVIDIA's operator takes over again.
	back bool
}

// state is that of the policy in the end.
func (s *stack) state() v1.State {
	if s.outdated {
		return v1.StateNotReady
	}
	return v1.StateReady
}

// ubuntus has nodes with these versions of Ubuntu. The image of NVIDIA's driver is for one.
func ubuntus(versions ...string) stack {
	runs := stack{outdated: len(versions) > 1, daemonSets: len(versions), back: true}
	for _, version := range versions {
		runs.nodes = append(runs.nodes, simulator.NodeSpec{OSVersion: version})
	}
	return runs
}

// nvidiaDrivers has two NVIDIADriver objects with different versions, each for nodes of two operating systems.
func nvidiaDrivers() stack {
	const team, own, otherVersion = "team", "a", "570.172.08"
	runs := ubuntus("24.04", "22.04", "24.04", "22.04")
	runs.outdated, runs.back = false, false
	for i := range 2 {
		runs.nodes[i].Labels = map[string]string{team: own}
	}
	runs.driver = func(spec *v1.DriverSpec) { spec.UseNvidiaDriverCRD = new(true) }
	runs.drivers = func(e *env) []Driver {
		var found []Driver
		for _, object := range []v1alpha1.NVIDIADriver{
			{ObjectMeta: metav1.ObjectMeta{Name: own}, Spec: v1alpha1.NVIDIADriverSpec{
				NodeSelector: v1.NodePoolSelector{team: own},
				ImageSpec:    v1.ImageSpec{Repository: "nvcr.io/nvidia", Image: "driver", Version: otherVersion},
			}},
			{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.NVIDIADriverSpec{
				Default:   true,
				ImageSpec: v1.ImageSpec{Repository: "nvcr.io/nvidia", Image: "driver", Version: driverVersion},
			}},
		} {
			e.Expect(e.client.Create(e.t.Context(), &object)).To(Succeed())
			found = append(found, driversOf(&object, "ubuntu24.04", "ubuntu22.04")...)
		}
		return found
	}
	return runs
}

// driversOf returns the DaemonSets of an NVIDIADriver object, one for each operating system.
func driversOf(object *v1alpha1.NVIDIADriver, systems ...string) []Driver {
	var found []Driver
	for _, system := range systems {
		name := "nvidia-gpu-driver-" + system + "-" + string(object.UID[:8])
		selected := map[string]string{
			discoveredID: "ubuntu", discoveredVersion: strings.TrimPrefix(system, "ubuntu"),
		}
		for key, value := range object.Spec.NodeSelector {
			selected[key] = string(value)
		}
		found = append(found, Driver{
			Name: name, App: name, Image: "nvcr.io/nvidia/driver:" + object.Spec.Version + "-" + system,
			NodeSelector: selected, Account: "nvidia-gpu-driver-" + object.Name + "-" + system,
			Object: &metav1.OwnerReference{
				APIVersion: "nvidia.com/v1alpha1", Kind: "NVIDIADriver", Name: object.Name, UID: object.UID,
				Controller: new(true), BlockOwnerDeletion: new(true),
			},
		})
	}
	return found
}

// precompiledDrivers has nodes with two kernels, and an image for each. All DaemonSets have the same selector.
func precompiledDrivers() stack {
	runs := stack{daemonSets: 2, driver: func(spec *v1.DriverSpec) {
		spec.UsePrecompiled, spec.Version = new(true), "580"
	}}
	var drivers []Driver
	for _, kernel := range []string{"6.8.0-60-generic", "6.8.0-71-generic"} {
		runs.nodes = append(runs.nodes, simulator.NodeSpec{Kernel: kernel})
		drivers = append(drivers, Driver{
			Name: DriverName + "-" + kernel + "-ubuntu24.04", App: DriverName, Precompiled: true,
			Image:        "nvcr.io/nvidia/driver:580-" + kernel + "-ubuntu24.04",
			NodeSelector: map[string]string{discoveredKernel: kernel},
		})
	}
	runs.drivers = func(*env) []Driver { return drivers }
	return runs
}

// openShift has nodes with two releases of Red Hat CoreOS, for each of which the driver toolkit builds the driver.
func openShift() stack {
	runs := stack{daemonSets: 2}
	images, drivers := map[string]string{}, []Driver{}
	for version, release := range map[string]string{"4.17": "417.94.202503172034-0", "4.18": "418.94.202501221327-0"} {
		runs.nodes = append(runs.nodes, simulator.NodeSpec{
			OS: "rhcos", OSVersion: version, Runtime: "cri-o://1.34.1", Labels: map[string]string{discoveredRelease: release},
		})
		images[release] = "quay.io/openshift/driver-toolkit:" + release
		drivers = append(drivers, Driver{
			Name: DriverName + "-" + release, App: DriverName + "-" + release, Release: release, Toolkit: images[release],
			Image:        "nvcr.io/nvidia/driver:" + driverVersion + "-rhcos" + version,
			NodeSelector: map[string]string{discoveredRelease: release},
		})
	}
	runs.drivers = func(e *env) []Driver {
		stream := cluster.DriverToolkit(images)
		e.Expect(e.client.Create(e.t.Context(), cluster.ImageStreams())).To(Succeed())
		e.Expect(e.client.Create(e.t.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: stream.GetNamespace()},
		})).To(Succeed())
		e.Eventually(func() error { return e.client.Create(e.t.Context(), stream.DeepCopy()) }).
			Should(Succeed(), "the kind is served a moment after its definition is created")
		return drivers
	}
	return runs
}
