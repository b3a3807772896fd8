package simulator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// withdrawal is how long a kubelet keeps the capacity of a resource that is no longer advertised. It depends on no
// timing: nothing waits for it.
const withdrawal = 5 * time.Minute

// amount is a resource as the kubelet reports it.
type amount struct {
	capacity, allocatable int64
	// withdrawn is since when the device plugin has not advertised it; zero while it does.
	withdrawn time.Time
}

// resources are those that the device plugin has advertised, by name.
type resources map[corev1.ResourceName]amount

// isGPU reports whether the name is that of a resource of the device plugin.
func isGPU(name corev1.ResourceName) bool {
	return name == resourceGPU || strings.HasPrefix(string(name), string(resourceGPU)+".") ||
		strings.HasPrefix(string(name), resourceMIGPrefix)
}

// resourcesOf returns what the Node reports.
func resourcesOf(object *corev1.Node) resources {
	found := resources{}
	for name, quantity := range object.Status.Allocatable {
		if isGPU(name) {
			capacity := object.Status.Capacity[name]
			found[name] = amount{capacity: capacity.Value(), allocatable: quantity.Value()}
		}
	}
	return found
}

// allocatable returns how many devices pods can get.
func (r resources) allocatable() int64 {
	var sum int64
	for _, of := range r {
		sum += of.allocatable
	}
	return sum
}

// changed returns the resources that differ from those before.
func (r resources) changed(before resources) resources {
	changes := resources{}
	for name, of := range r {
		if was, known := before[name]; !known || was.capacity != of.capacity || was.allocatable != of.allocatable {
			changes[name] = of
		}
	}
	return changes
}

// plugin returns the pod whose device plugin is registered with the kubelet, nil for none. Other containers of the pod
// do not matter.
func (n *node) plugin() *pod {
	for _, p := range n.pods {
		if p.app == appPlugin && !p.ending() && p.mains[0].provides() && (n.driverInstance() != "" || n.loaded != "") {
			return p
		}
	}
	return nil
}

// devices returns the GPUs and MIG devices of the node by resource, as a MIG strategy names them. The failure is why
// the strategy does not suit the GPUs.
func (n *node) devices(strategy string) (devices map[corev1.ResourceName]int64, failure string) {
	devices = map[corev1.ResourceName]int64{}
	if strategy == strategyNone {
		devices[resourceGPU] = n.gpus
		return devices, ""
	}
	whole, empty := int64(0), false
	for _, gpu := range n.partitions {
		if !gpu.enabled {
			whole++
		}
		empty = empty || gpu.enabled && len(gpu.devices) == 0
		for profile, count := range gpu.devices {
			devices[migResource(profile)] += int64(count)
		}
	}
	if strategy == strategyMixed {
		devices[resourceGPU] = whole
		return devices, ""
	}
	if whole == n.gpus {
		devices[resourceGPU] = whole
		return devices, ""
	}
	if whole > 0 || empty || len(devices) > 1 {
		return nil, "more than one MIG device type present on node, or GPUs without MIG devices"
	}
	return map[corev1.ResourceName]int64{resourceGPU: sum(devices)}, ""
}

func sum(devices map[corev1.ResourceName]int64) int64 {
	var all int64
	for _, count := range devices {
		all += count
	}
	return all
}

// migResource returns the resource of MIG devices of a profile.
func migResource(profile string) corev1.ResourceName {
	return corev1.ResourceName(resourceMIGPrefix + strings.ReplaceAll(profile, "+", "."))
}

// hasMIG reports whether MIG is enabled on any GPU.
func (n *node) hasMIG() bool {
	return slices.ContainsFunc(n.partitions, func(gpu partition) bool { return gpu.enabled })
}

// pluginFailure returns why the device plugin of a pod cannot start on this node, empty if it can.
func (n *node) pluginFailure(p *pod) string {
	_, sharing := p.config().shared()
	if p.app != appPlugin {
		return ""
	}
	strategy := p.migStrategy()
	switch {
	case sharing == sharingMPS && strategy == strategyMixed:
		return "using --mig-strategy=mixed is not supported with MPS"
	case sharing == sharingMPS && strategy == strategySingle && n.hasMIG():
		return "sharing with MPS is not supported for MIG devices"
	}
	_, failure := n.devices(strategy)
	return failure
}

// offered returns what the device plugin advertises: nothing while it waits for the daemon of the Multi-Process
// Service.
func (n *node) offered() map[corev1.ResourceName]int64 {
	p := n.plugin()
	if p == nil {
		return nil
	}
	config := p.config()
	// Without a model, GPU Feature Discovery reports nothing, so that the node gets no daemon.
	if _, sharing := config.shared(); sharing == sharingMPS && n.model != "" && !n.runs(appMPS) {
		return nil
	}
	devices, _ := n.devices(p.migStrategy())
	offered := map[corev1.ResourceName]int64{}
	for name, count := range devices {
		if count > 0 {
			offered[config.advertisedAs(name)] = count * config.replicas(name)
		}
	}
	return offered
}

// unhealthy returns how many devices the device plugin has found unhealthy. It does not notice that one has recovered.
func (n *node) unhealthy() int64 {
	p := n.plugin()
	if p == nil {
		return 0
	}
	if run := p.instance(); n.lossSeenBy != run {
		n.lossSeenBy, n.loss = run, 0
	}
	now, _ := strconv.ParseInt(n.object.Annotations[UnhealthyAnnotation], 10, 64)
	n.loss = max(n.loss, now)
	return n.loss
}

// report returns what the kubelet reports: without the device plugin nothing is allocatable but the capacity stays for
// some minutes. An unhealthy GPU is one device less, also of a shared one.
func (n *node) report(now time.Time) resources {
	reported := resources{}
	offered, lost := n.offered(), n.unhealthy()
	for _, name := range slices.Sorted(maps.Keys(offered)) {
		gone := min(lost, offered[name])
		reported[name], lost = amount{capacity: offered[name], allocatable: offered[name] - gone}, lost-gone
	}
	for name, before := range n.advertised {
		if _, still := offered[name]; still {
			continue
		}
		left := amount{capacity: before.capacity, withdrawn: before.withdrawn}
		if left.withdrawn.IsZero() {
			left.withdrawn = now
		}
		if reached(now, left.withdrawn.Add(withdrawal)) {
			left.capacity = 0
		}
		reported[name] = left
	}
	return reported
}

// nextWithdrawal returns when the capacity of a resource ends; zero for never.
func (n *node) nextWithdrawal() time.Time {
	var next time.Time
	for _, of := range n.advertised {
		if !of.withdrawn.IsZero() && of.capacity > 0 {
			next = earlier(next, of.withdrawn.Add(withdrawal))
		}
	}
	return next
}

// writeResources reports the devices as a kubelet does.
func (n *node) writeResources(ctx context.Context, now time.Time) (changed bool, err error) {
	want := n.report(now)
	changes := want.changed(n.advertised)
	if len(changes) == 0 {
		n.advertised = want
		return false, nil
	}
	capacity, allocatable := map[corev1.ResourceName]string{}, map[corev1.ResourceName]string{}
	for name, of := range changes {
		capacity[name] = strconv.FormatInt(of.capacity, 10)
		allocatable[name] = strconv.FormatInt(of.allocatable, 10)
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": n.uid},
		"status":   map[string]any{"capacity": capacity, "allocatable": allocatable},
	})
	if err != nil {
		return false, fmt.Errorf("encode status of node %s: %w", n.name, err)
	}
	_, err = n.sim.client.CoreV1().Nodes().Patch(ctx, n.name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return false, fmt.Errorf("write status of node %s: %w", n.name, err)
	}
	n.advertised = want
	return true, nil
}

// refusal returns why the kubelet does not admit a pod: it requests more than one of a resource of which the device
// plugin gives only one.
func (n *node) refusal(p *pod) string {
	plugin := n.plugin()
	if plugin == nil || !plugin.config().failsAbove() {
		return ""
	}
	for _, c := range slices.Concat(p.inits, p.mains) {
		for name, quantity := range c.spec.Resources.Limits {
			plain := corev1.ResourceName(strings.TrimSuffix(string(name), ".shared"))
			if isGPU(name) && plugin.config().replicas(plain) > 1 && quantity.Value() > 1 {
				return fmt.Sprintf("Allocate failed due to rpc error: code = Unknown desc = invalid request for %s: "+
					"maximum request size for shared resources is 1, found %d", name, quantity.Value())
			}
		}
	}
	return ""
}
