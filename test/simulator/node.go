package simulator

import (
	"context"
	"errors"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/clusterpolicy/gpu-operator/test/simulator/host"
)

// node is one simulated node: its host, and the pods that its kubelet runs. Only the worker that has the node's queue
// key accesses it.
type node struct {
	sim  *Simulator
	name string
	uid  types.UID
	ip   string
	// object is the Node as last read from the API.
	object *corev1.Node
	// host is the machine of a node that runs processes; nil if everything is simulated.
	host *host.Host
	// smi is the exit code of nvidia-smi on that machine.
	smi int

	// model of the GPUs, empty if it is unknown, and how each of them is partitioned.
	model      string
	partitions []partition
	// mig is the state of the MIG manager, and featured are the labels of GPU Feature Discovery.
	mig      migManager
	featured map[string]string
	// xid is the Xid that was played last, and reporter the run of the health agent that has reported.
	xid, reporter string
	// loss is the number of unhealthy devices that one run of the device plugin, lossSeenBy, has noticed.
	loss       int64
	lossSeenBy string

	gpus          int64
	driverOnHost  bool
	toolkitOnHost bool

	pods map[types.UID]*pod
	// markers maps each marker to the driver instance for which it was written.
	markers map[string]string
	// boot is the boot ID, and loaded the digest of the driver whose modules are loaded; only with Options.Modules.
	boot, loaded string
	// unwanted are the pods that k8s-driver-manager evicts.
	unwanted []*pod
	// advertised are the resources of GPUs in the API.
	advertised resources
}

func (s *Simulator) newNode(object *corev1.Node) *node {
	n := &node{
		sim: s, name: object.Name, uid: object.UID, object: object,
		pods: map[types.UID]*pod{}, markers: map[string]string{}, advertised: resourcesOf(object),
		boot: object.Status.NodeInfo.BootID,
	}
	return n
}

// describe reads the node's hardware from its annotations.
func (n *node) describe(object *corev1.Node) {
	if !olderThan(object, n.object) {
		n.object = object
	}
	// Without the annotations the node has no GPU, and no driver or toolkit on its host.
	n.gpus, _ = strconv.ParseInt(object.Annotations[annotationGPUs], 10, 64)
	n.model = object.Annotations[annotationModel]
	if int64(len(n.partitions)) != n.gpus {
		n.losePartitions()
	}
	n.driverOnHost, _ = strconv.ParseBool(object.Annotations[annotationDriverOnHost])
	n.toolkitOnHost, _ = strconv.ParseBool(object.Annotations[annotationToolkitOnHost])
	for _, address := range object.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			n.ip = address.Address
		}
	}
}

// olderThan reports whether the watch has not delivered what was written since.
func olderThan(object, written *corev1.Node) bool {
	order, err := resourceversion.CompareResourceVersion(object.ResourceVersion, written.ResourceVersion)
	return err == nil && order < 0
}

// observe updates the node's pods from the API.
func (n *node) observe(now time.Time, pods []*corev1.Pod) error {
	present := make(map[types.UID]bool, len(pods))
	for _, object := range pods {
		present[object.UID] = true
		p, ok := n.pods[object.UID]
		if !ok {
			p = newPod(object, now, n.sim.newPodAddress(object))
			n.pods[object.UID] = p
		}
		p.object = object
		if object.DeletionTimestamp != nil && !p.ending() {
			p.stop(now.Add(n.terminationTime(p)))
		}
	}
	var failures []error
	for uid, p := range n.pods {
		if !present[uid] {
			delete(n.pods, uid)
			failures = append(failures, n.clear(p))
		}
	}
	return errors.Join(failures...)
}

// clear removes what a removed pod leaves on the node's machine.
func (n *node) clear(p *pod) error {
	if n.host == nil {
		return nil
	}
	var driver error
	if p.app == appDriver {
		driver = errors.Join(n.host.StopDriver(), n.host.UnmountDriver())
	}
	return errors.Join(driver, n.host.RemovePod(p.uid))
}

func (n *node) terminationTime(p *pod) time.Duration {
	ending := n.sim.dice.vary(n.sim.timing.Terminate, n.name, p.app, "terminate")
	grace := p.object.DeletionGracePeriodSeconds
	switch {
	case grace == nil:
		return ending
	case p.object.Annotations[IgnoresTermAnnotation] == "true":
		return time.Duration(*grace) * time.Second
	default:
		return min(ending, time.Duration(*grace)*time.Second)
	}
}

// advance advances all pods until nothing changes: one pod's progress may be what another waits for.
func (n *node) advance(ctx context.Context, now time.Time) {
	for before, after := "", n.facts(); before != after; {
		before = after
		for _, p := range n.pods {
			p.advance(ctx, now, n)
		}
		n.load()
		after = n.facts()
	}
}

// facts returns everything that a pod may wait for.
func (n *node) facts() string {
	facts := n.driverInstance() + n.loaded + strconv.FormatBool(n.handlerInstalled())
	for _, marker := range []string{markerDriver, markerToolkit, markerPlugin} {
		facts += strconv.FormatBool(n.proven(marker))
	}
	return facts
}

// driverInstance identifies the working driver: the pod that provides it, or the host's; empty without one. As for the
// markers of gpu-node, a driver container that runs again in its pod is the same instance.
func (n *node) driverInstance() string {
	if pod := n.driverPod(); pod != noDriverPod {
		return pod
	}
	if n.driverOnHost {
		return "host"
	}
	return ""
}

// driverPod returns the UID of the pod with the working driver.
func (n *node) driverPod() string {
	for _, p := range n.pods {
		if p.drives() {
			return string(p.uid)
		}
	}
	return noDriverPod
}

// handlerInstalled reports whether the container runtime has the GPU runtime handler.
func (n *node) handlerInstalled() bool { return n.toolkitOnHost || n.runs(appToolkit) }

// runs reports whether a pod of this app is ready.
func (n *node) runs(app string) bool {
	for _, p := range n.pods {
		if p.app == app && p.ready() {
			return true
		}
	}
	return false
}

// proven reports whether a marker exists. One of another driver instance is stale.
func (n *node) proven(marker string) bool {
	instance := n.driverInstance()
	return instance != "" && n.markers[marker] == instance
}

// provable reports whether a validation would succeed.
func (n *node) provable(marker string) bool {
	switch {
	case n.driverInstance() == "", n.driverFails():
		return false
	case marker == markerToolkit:
		return n.handlerInstalled()
	case marker == markerPlugin:
		return n.advertised.allocatable() > 0
	default:
		return true
	}
}

func (n *node) prove(markers []string) {
	for _, marker := range markers {
		n.markers[marker] = n.driverInstance()
	}
}

// initDuration returns how long an init container takes once nothing blocks it.
func (n *node) initDuration(p program) time.Duration {
	switch p.verb {
	case verbWait, verbCopy, verbDiscover:
		return 0
	case verbValidate:
		return n.sim.timing.Validate
	default:
		return n.sim.timing.Init
	}
}

// next returns when the node has to be processed again.
func (n *node) next() time.Time {
	next := earlier(n.nextWithdrawal(), n.mig.due)
	for _, p := range n.pods {
		next = earlier(next, p.next())
	}
	return next
}
