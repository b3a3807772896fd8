package simulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// exitTerminated is the exit code of a container that was ended by SIGTERM, exitLost of one that a reboot has ended.
	exitTerminated = 143
	exitLost       = 255
	reasonLost     = "Unknown"
)

// inUse is the message of k8s-driver-manager if it cannot unload the modules.
const inUse = "driver is in use: failed to unload the kernel module nvidia"

// playsManager reports whether the simulator plays k8s-driver-manager on the node.
func (n *node) playsManager() bool { return n.sim.modules && n.host == nil }

// load remembers the driver of a driver container that has become ready. Its modules stay when its pod is deleted.
func (n *node) load() {
	if !n.playsManager() {
		return
	}
	for _, p := range n.pods {
		if p.drives() {
			n.loaded = p.driverDigest()
		}
	}
}

// driverDigest identifies what the driver container of the pod installs.
func (p *pod) driverDigest() string {
	for _, variable := range p.mains[0].spec.Env {
		if variable.Name == digestVariable {
			return variable.Value
		}
	}
	return p.mains[0].spec.Image
}

// findsModules reports whether k8s-driver-manager of a new driver pod finds modules loaded: then it restarts the paused
// operands, also to keep an equal driver.
func (n *node) findsModules() bool {
	if n.host != nil {
		return n.host.ModulesLoaded()
	}
	return n.playsManager() && n.loaded != ""
}

// runManager advances k8s-driver-manager on a node without processes. It waits until the paused operands have left. An
// equal driver it keeps; another one it unloads if no pod uses its GPUs, and fails otherwise. It finishes at once if no
// driver is loaded.
func (c *container) runManager(at conditions) {
	if !c.runs(at) {
		return
	}
	n := at.node
	if n.findsModules() && (!n.paused() || n.hasPausedPods()) {
		return
	}
	if !n.findsModules() || n.loaded == at.pod.driverDigest() {
		c.terminate(at.now, 0, reasonCompleted, "")
		return
	}
	if users := n.gpuUsers(); len(users) > 0 {
		if n.object.Annotations[upgradeEnabled] != "true" {
			n.unwanted = users
			return
		}
		c.terminate(at.now, 1, reasonError, inUse)
		c.due = at.now.Add(at.timing.Crash)
		return
	}
	if c.due.IsZero() {
		c.due = at.now.Add(at.duration)
	}
	if reached(at.now, c.due) {
		n.loaded = ""
		c.terminate(at.now, 0, reasonCompleted, "")
	}
}

// runs starts an init container, also again after a failure, and reports whether it is running.
func (c *container) runs(at conditions) bool {
	if c.phase == terminated && reached(at.now, c.due) {
		c.backOff(at)
	}
	if c.phase == waiting && (c.due.IsZero() || reached(at.now, c.due)) {
		if c.last != nil {
			c.restarts++
		}
		c.start(at.now)
	}
	return c.phase == running
}

// paused reports whether no operand that k8s-driver-manager pauses is selected for the node any more.
func (n *node) paused() bool {
	for _, operand := range pausedOperands {
		if n.object.Labels[deployPrefix+operand] == deployTrue {
			return false
		}
	}
	return true
}

// gpuUsers returns the pods that hold GPUs of the node; a deleted one holds them until its containers have ended.
func (n *node) gpuUsers() []*pod {
	var users []*pod
	for _, p := range n.pods {
		if p.holdsGPU() && !p.removed && !p.hasEnded() {
			users = append(users, p)
		}
	}
	return users
}

func (p *pod) holdsGPU() bool {
	for _, containers := range [][]*container{p.inits, p.mains} {
		for _, c := range containers {
			for name := range c.spec.Resources.Limits {
				if strings.HasPrefix(string(name), vendorPrefix) {
					return true
				}
			}
		}
	}
	return false
}

func (p *pod) hasEnded() bool {
	phase := p.phase()
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// writeEvictions evicts the pods that k8s-driver-manager evicts. One that a budget protects stays.
func (n *node) writeEvictions(ctx context.Context) error {
	var failures []error
	for _, p := range n.unwanted {
		if p.ending() {
			continue
		}
		err := n.sim.client.PolicyV1().Evictions(p.object.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.object.Namespace, Name: p.object.Name},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err) {
			failures = append(failures, fmt.Errorf("evict pod %s/%s: %w", p.object.Namespace, p.object.Name, err))
		}
	}
	n.unwanted = nil
	return errors.Join(failures...)
}

// Reboot reboots a node without processes: its modules are gone, and its pods start again. Its kubelet has no devices
// until their plugin registers again, and refuses the pods that have some.
func (s *Simulator) Reboot(ctx context.Context, node string) error {
	object, err := s.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read node %s: %w", node, err)
	}
	none := map[corev1.ResourceName]string{}
	for name := range resourcesOf(object) {
		none[name] = "0"
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"nodeInfo":    map[string]string{"bootID": fmt.Sprintf("boot-%s-%d", node, time.Now().UnixNano())},
		"allocatable": none, "capacity": none,
	}})
	if err != nil {
		return fmt.Errorf("encode the boot of node %s: %w", node, err)
	}
	_, err = s.client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
		"status")
	if err != nil {
		return fmt.Errorf("reboot node %s: %w", node, err)
	}
	return nil
}

// noticeReboot restarts the pods of a node that has another boot ID.
func (n *node) noticeReboot(now time.Time) {
	boot := n.object.Status.NodeInfo.BootID
	if boot == n.boot || n.host != nil {
		return
	}
	n.boot, n.loaded, n.markers = boot, "", map[string]string{}
	n.losePartitions()
	for _, p := range n.pods {
		switch {
		case p.ending() || p.hasEnded() || p.refused != "":
		case p.hasDevices():
			p.admitted, p.refused = true, "Allocate failed due to no healthy devices present; cannot allocate unhealthy "+
				"devices "+string(resourceGPU)+", which is unexpected"
		default:
			p.restart(now)
		}
	}
}

// hasDevices reports whether the pod has devices of the device plugin. After a boot the kubelet admits the pods of the
// node again, before the plugin has registered, whatever the taints of the node.
func (p *pod) hasDevices() bool {
	return slices.ContainsFunc(p.object.Spec.Containers, func(container corev1.Container) bool {
		for name := range container.Resources.Limits {
			if isGPU(name) {
				return true
			}
		}
		return false
	})
}

// down is how long a machine is down while it reboots, at least: what ran before has ended in an earlier second.
const down = time.Second

// restart makes the pod start from the beginning, or fail if it is never restarted.
func (p *pod) restart(now time.Time) {
	p.sandbox, p.recreated = false, now
	for _, containers := range [][]*container{p.inits, p.mains} {
		for _, c := range containers {
			if c.phase == running {
				c.terminate(now.Add(-down), exitLost, reasonLost, "")
			}
			if p.object.Spec.RestartPolicy != corev1.RestartPolicyNever {
				c.wait(now, reasonInitializing, "", 0)
				c.due = time.Time{}
			}
		}
	}
}

// managedLabel and managedValue mark the objects of the operator.
const (
	managedLabel = "app.kubernetes.io/managed-by"
	managedValue = "gpu-operator"
)

// pullsDriver reports whether the operator created the pod to pull images: it is not restarted, and uses no GPU.
func pullsDriver(object *corev1.Pod) bool {
	if object.Spec.RestartPolicy != corev1.RestartPolicyNever || object.Labels[managedLabel] != managedValue {
		return false
	}
	for _, c := range object.Spec.Containers {
		for name := range c.Resources.Limits {
			if strings.HasPrefix(string(name), vendorPrefix) {
				return false
			}
		}
	}
	return true
}

// pullFault returns ImagePull if the node cannot pull the image, which is one of the driver's.
func (n *node) pullFault(image string) Mode {
	fault := n.sim.faults.of(n.name, []string{driverOperand})
	if fault != ImagePull {
		return ""
	}
	for _, p := range n.pods {
		if p.app == appDriver && repository(p.mains[0].spec.Image) == repository(image) {
			return fault
		}
	}
	return ""
}

// repository returns an image without its tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		image = image[:colon]
	}
	return image
}
