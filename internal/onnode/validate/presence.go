package validate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/clusterpolicy/gpu-operator/internal/names/text"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/kmod"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/pci"
)

// presence is what a node has of its driver and GPUs, as sysfs, procfs and /dev show it. Reading it opens no GPU, so it
// neither wakes one nor keeps the driver from being unloaded.
type presence struct {
	// Boot and DriverInstance are those of the driver's marker: what is validated holds for them only.
	Boot           string `json:"boot"`
	DriverInstance string `json:"driverInstance"`
	// Module is set if the kernel module nvidia is loaded, and Version is its version; empty if unknown.
	Module  bool   `json:"module"`
	Version string `json:"version"`
	// Bound are the addresses of the GPUs that are bound to the driver on the PCI bus. Listed are those of the driver,
	// each with the minor number of its device node; empty for none.
	Bound  []string          `json:"bound"`
	Listed map[string]string `json:"listed"`
	// Nodes are the names of the driver's device nodes in the host's /dev.
	Nodes []string `json:"nodes"`
}

// maxNamed is the number of lost GPUs that a reason names: the operator shows only its first 300 bytes.
const maxNamed = 2

// sharedNodes are the device nodes that a container needs beside those of its GPUs.
var sharedNodes = []string{"nvidiactl", "nvidia-uvm"}

// readPresence reads what the node has now. dev is the host's /dev as mounted here.
func readPresence(k kernel, dev string) (presence, error) {
	bound, err := pci.BoundGPUs(k.sys)
	if err != nil {
		return presence{}, fmt.Errorf("the GPUs on the bus cannot be read: %w", err)
	}
	found := presence{
		Module: kmod.Loaded(k.sys, kmod.Driver), Version: k.moduleVersion(), Bound: bound, Listed: map[string]string{},
	}
	names := slices.Clone(sharedNodes)
	for _, gpu := range k.driverGPUs() {
		if gpu.excluded {
			continue
		}
		found.Listed[gpu.address] = gpu.minor
		if gpu.minor != "" {
			names = append(names, "nvidia"+gpu.minor)
		}
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dev, name)); err == nil {
			found.Nodes = append(found.Nodes, name)
		}
	}
	return found, nil
}

// Loss is the error about what a node had when it was validated, and has no more.
type Loss struct {
	// GPUs is the number of GPUs that are lost while others are left; 0 if no GPU can be used.
	GPUs   int
	reason string
}

func (l *Loss) Error() string { return l.reason }

// lossOf returns what of the presence before is missing now; nil for nothing. What the node did not have before is not
// missing.
func lossOf(before, now presence) *Loss {
	if reason := driverLoss(before, now); reason != "" {
		return &Loss{reason: reason}
	}
	var lost []string
	all := 0
	for address, minor := range before.Listed {
		if !slices.Contains(before.Bound, address) {
			continue
		}
		all++
		if what := missingOf(address, minor, before, now); what != "" {
			lost = append(lost, address+" "+what)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	slices.Sort(lost)
	loss := &Loss{GPUs: len(lost), reason: fmt.Sprintf("%d of %d GPUs lost since the validation: %s; see the kernel log, "+
		"and reset the GPU or reboot the node", len(lost), all, text.Named(lost, maxNamed))}
	if len(lost) == all {
		loss.GPUs = 0
	}
	return loss
}

// driverLoss returns what of the driver is missing that all GPUs need; empty for nothing.
func driverLoss(before, now presence) string {
	switch {
	case before.Module && !now.Module:
		return "the kernel module nvidia, with which the node was validated, is not loaded any more; see the kernel log " +
			"and the driver on this node"
	case before.Version != "" && now.Version != "" && before.Version != now.Version:
		return fmt.Sprintf("the node was validated with driver %s, and now the kernel module has version %s; delete the "+
			"pods of the stack on this node, or reboot it", before.Version, now.Version)
	}
	for _, name := range sharedNodes {
		if slices.Contains(before.Nodes, name) && !slices.Contains(now.Nodes, name) {
			return fmt.Sprintf(
				"the device node /dev/%s is missing on the host since the validation; run nvidia-modprobe -u -c=0 there", name)
		}
	}
	return ""
}

// missingOf returns what is missing of a GPU; empty if nothing is.
func missingOf(address, minor string, before, now presence) string {
	node := "nvidia" + minor
	if !slices.Contains(now.Bound, address) {
		return "is not bound to the driver on the bus"
	}
	if _, listed := now.Listed[address]; !listed {
		return "is not listed by the driver"
	}
	if minor != "" && slices.Contains(before.Nodes, node) && !slices.Contains(now.Nodes, node) {
		return "has no device node /dev/" + node
	}
	return ""
}
