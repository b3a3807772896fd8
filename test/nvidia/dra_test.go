//go:build linux

package nvidia

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/fakegpu"
	"github.com/clusterpolicy/gpu-operator/test/nvidia/dra"
)

// draCluster is a control plane with the objects of the DRA driver.
type draCluster struct {
	*cluster.Cluster
	client     kubernetes.Interface
	kubeconfig string
}

func newDRACluster(t *testing.T) *draCluster {
	t.Helper()
	g := NewWithT(t)
	starting, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := &draCluster{Cluster: cluster.StartFor(t, cluster.Options{Version: cluster.Newest})}
	objects, err := dra.Objects(dra.DriverRoot)
	g.Expect(err).NotTo(HaveOccurred())
	// The plugin runs as a process.
	objects = objects[:len(objects)-1]
	g.Expect(cluster.InstallObjects(starting, c.Config, objects)).To(Succeed())
	c.client, err = kubernetes.NewForConfig(c.Config)
	g.Expect(err).NotTo(HaveOccurred())
	c.kubeconfig, err = c.ServiceAccountKubeconfig(starting, dra.Namespace, dra.Name, "")
	g.Expect(err).NotTo(HaveOccurred())
	return c
}

// offering is a node whose GPUs NVIDIA's DRA driver offers.
type offering struct {
	*machine
	cluster *draCluster
	node    string
	plugin  *process
	ended   chan struct{}
}

// offer adds a node to the cluster, and starts the DRA driver's plugin on its machine.
func (c *draCluster) offer(m *machine, variables ...string) *offering {
	m.t.Helper()
	g := NewWithT(m.t)
	o := &offering{
		machine: m, cluster: c, node: strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(m.t.Name())),
		ended: make(chan struct{}),
	}
	_, err := c.client.CoreV1().Nodes().Create(m.t.Context(), simulatedNode(o.node), metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	mkdir(g, m.dir, "var/lib/kubelet/plugins_registry")
	o.plugin = m.command(context.WithoutCancel(m.t.Context()), append([]string{
		"KUBECONFIG=" + c.kubeconfig, "NODE_NAME=" + o.node, "NAMESPACE=" + dra.Namespace, "IMAGE_NAME=" + dra.Image,
		"NVIDIA_DRIVER_ROOT=/run/nvidia/driver", "DRIVER_ROOT_CTR_PATH=" + m.root, "CDI_ROOT=/run/cdi",
		"NVIDIA_CDI_HOOK_PATH=/usr/local/nvidia/toolkit/nvidia-cdi-hook",
	}, variables...), program{name: dra.Program}, "-v=6")
	g.Expect(o.plugin.Start()).To(Succeed())
	go func() { defer close(o.ended); _ = o.plugin.Wait() }()
	m.t.Cleanup(func() {
		_ = o.plugin.Process.Kill()
		<-o.ended
		if m.t.Failed() {
			m.t.Log(o.plugin.log)
		}
	})
	return o
}

// simulatedNode is a node that is ready, with room for pods, which no kubelet starts.
func simulatedNode(name string) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods: resource.MustParse("20"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelHostname: name},
			Annotations: map[string]string{cluster.SimulatedNodeAnnotation: cluster.SimulatedNodeValue},
		},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(),
			}},
		},
	}
}

// devices returns what the plugin has published of the node: its devices by their names, in one slice of a pool that is
// named as the node, which owns it.
func (o *offering) devices(g Gomega) map[string]map[string]string {
	found, err := o.cluster.client.ResourceV1().ResourceSlices().List(context.Background(), metav1.ListOptions{
		FieldSelector: resourcev1.ResourceSliceSelectorNodeName + "=" + o.node,
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found.Items).To(HaveLen(1))
	slice := found.Items[0]
	g.Expect(slice.OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Node"), HaveField("Name", o.node))))
	g.Expect(slice.Spec.Driver).To(Equal(dra.Driver))
	g.Expect(slice.Spec.Pool).To(And(HaveField("Name", o.node), HaveField("ResourceSliceCount", int64(1))))
	devices := map[string]map[string]string{}
	for i := range slice.Spec.Devices {
		devices[slice.Spec.Devices[i].Name] = dra.Describe(&slice.Spec.Devices[i])
	}
	return devices
}

// offers waits until the node has these devices.
func (o *offering) offers(devices map[string]map[string]string) {
	o.t.Helper()
	NewWithT(o.t).Eventually(o.devices).WithTimeout(patience).WithPolling(50 * time.Millisecond).Should(Equal(devices))
}

// gpuDevice is what the driver publishes of a GPU of package fakegpu.
func gpuDevice(gpu int, changes map[string]string) map[string]string {
	device := map[string]string{
		"type": "gpu", "uuid": uuid(gpu), "productName": "NVIDIA H100 80GB HBM3", "brand": "Nvidia",
		"architecture": "Hopper", "cudaComputeCapability": "v9.0.0", "driverVersion": "v580.95.5",
		"cudaDriverVersion": "v13.0.0", "resource.kubernetes.io/pciBusID": fmt.Sprintf("0000:%02x:00.0", 7+gpu),
		"resource.kubernetes.io/pcieRoot": "pci0000:00", "capacity/memory": "81559Mi",
	}
	maps.Copy(device, changes)
	return device
}

// gpuDevices are those of the GPUs from one to the last of an H100 machine.
func gpuDevices(first int) map[string]map[string]string {
	devices := map[string]map[string]string{}
	for gpu := first; gpu < h100.gpus; gpu++ {
		devices[fmt.Sprintf("gpu-%d", gpu)] = gpuDevice(gpu, nil)
	}
	return devices
}

// TestTheDRADriver runs NVIDIA's driver against the API server and the scheduler.
func TestTheDRADriver(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	t.Parallel()
	c := newDRACluster(t)
	t.Cleanup(func() {
		g := NewWithT(t)
		calls, err := c.Since(0)
		g.Expect(err).NotTo(HaveOccurred())
		own := calls.By(cluster.ServiceAccountUser(dra.Namespace, dra.Name))
		g.Expect(own).NotTo(BeEmpty())
		g.Expect(own.Forbidden().String()).To(BeEmpty(), "the rights of the manifest must do")
	})
	for name, run := range map[string]func(*testing.T, *draCluster){
		"H100": offersWholeGPUs, "T4": offersAGPUWithoutMIG, "MIG": offersMIGDevices, "XID": taintsUnhealthyGPUs,
		"holders": seesWhoHoldsGPUs,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, c)
		})
	}
}

// A plugin that ends leaves what it has published, which is its kubelet's to delete.
func offersWholeGPUs(t *testing.T, c *draCluster) {
	g := NewWithT(t)
	o := c.offer(newMachine(t, h100))
	o.offers(gpuDevices(0))
	for _, socket := range []string{"plugins_registry/gpu.nvidia.com-reg.sock", "plugins/gpu.nvidia.com/dra.sock"} {
		g.Expect(o.dir + "/var/lib/kubelet/" + socket).To(BeAnExistingFile())
	}
	g.Expect(o.plugin.Process.Signal(syscall.SIGTERM)).To(Succeed())
	g.Eventually(o.ended, patience).Should(BeClosed())
	g.Expect(o.plugin.ProcessState.ExitCode()).To(BeZero())
	g.Expect(o.devices(g)).To(Equal(gpuDevices(0)))
	o.knowsAll()
}

func offersAGPUWithoutMIG(t *testing.T, c *draCluster) {
	o := c.offer(newMachine(t, t4))
	o.offers(map[string]map[string]string{"gpu-0": gpuDevice(0, map[string]string{
		"productName": "Tesla T4", "architecture": "Turing", "cudaComputeCapability": "v7.5.0",
		"capacity/memory": "15Gi",
	})})
	_, paths := o.serveClaim("gpu.nvidia.com")
	NewWithT(t).Expect(paths).To(ContainElement("/dev/nvidia0"))
	o.knowsAll()
}

// A GPU in MIG mode is offered as its devices, which mig-parted has made before the plugin starts.
func offersMIGDevices(t *testing.T, c *draCluster) {
	m := newMachine(t, h100)
	m.showCapabilities("gpu0")
	m.mustPartition("first-only")
	o := c.offer(m)
	devices := gpuDevices(1)
	for part := range 7 {
		device := gpuDevice(0, map[string]string{
			"type": "mig", "profile": "1g.10gb", "parentUUID": uuid(0),
			"uuid":            fmt.Sprintf("MIG%s%02d", uuid(0)[len("GPU"):len(uuid(0))-2], part+1),
			"capacity/memory": "9856Mi", "capacity/multiprocessors": "16", "capacity/copyEngines": "1",
			"capacity/decoders": "1", "capacity/encoders": "0", "capacity/jpegEngines": "1", "capacity/ofaEngines": "0",
			fmt.Sprintf("capacity/memorySlice%d", part): "1",
		})
		devices[fmt.Sprintf("gpu-0-mig-1g10gb-19-%d", part)] = device
	}
	o.offers(devices)
	device, paths := o.serveClaim("mig.nvidia.com")
	g := NewWithT(t)
	g.Expect(devices).To(HaveKeyWithValue(device, HaveKeyWithValue("type", "mig")))
	g.Expect(paths).To(And(ContainElement("/dev/nvidia0"), HaveLen(3)))
	g.Expect(slices.DeleteFunc(paths, func(path string) bool {
		return strings.HasPrefix(path, "/dev/nvidia-caps/nvidia-cap")
	})).To(HaveLen(1), "its GPU instance and its compute instance")
	o.knowsAll()
}

// With the gate for it, an XID becomes a taint, and that of an application one without an effect.
func taintsUnhealthyGPUs(t *testing.T, c *draCluster) {
	g := NewWithT(t)
	o := c.offer(newMachine(t, h100), "FEATURE_GATES=NVMLDeviceHealthCheck=true")
	o.offers(gpuDevices(0))
	// Earlier events are lost.
	g.Eventually(o.plugin.log.String, patience, "50ms").Should(ContainSubstring("started device health monitoring"))
	o.beside(fakegpu.Events, "1 31\n2 79\n")
	tainted := gpuDevices(0)
	tainted["gpu-1"]["taint/gpu.nvidia.com/xid"] = "31:None"
	tainted["gpu-2"]["taint/gpu.nvidia.com/xid"] = "79:NoSchedule"
	o.offers(tainted)
	o.knowsAll()
}
