package discover

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/osrelease"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/pci"
)

// maxValue is the maximum length of a label's value, and of the name in its key, in Kubernetes.
const maxValue = 63

var (
	valuePattern = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$`)
	forbidden    = regexp.MustCompile(`[^A-Za-z0-9_.-]`)
)

// Host has the places where a node describes itself.
type Host struct {
	// SysRoot and ProcRoot are where sysfs and procfs are mounted. In any container they are the node's.
	SysRoot, ProcRoot string
	// Root is where the host's /usr/lib is mounted, and /etc if it is available. The first suffices, unless
	// /etc/os-release is not a link, as it should be by os-release(5).
	Root string
}

// Findings are what was found on a node.
type Findings struct {
	// Labels of what was found.
	Labels map[string]string
	// Unknown are the labels of what could not be read.
	Unknown map[string]bool
	// KeepFeatures is set if the labels of GPU Feature Discovery are unknown.
	KeepFeatures bool
	// NoGPU is set if there certainly is no GPU.
	NoGPU bool
	// GPUsOnBus is how many GPUs are bound to NVIDIA's driver; 0 also if it is not loaded, or if that is unknown.
	GPUsOnBus int
	// Problems are sentences about what could not be read and what was left out.
	Problems []string
}

// nvidiaModule is the kernel driver of GPUs that containers can use. GPUs of virtual machines are bound to vfio-pci.
const nvidiaModule = "nvidia"

// gpuLabels show a GPU; readers treat them as equivalent.
var gpuLabels = []string{labels.DiscoveryPCIPresent, labels.DiscoveryPCI3D, labels.DiscoveryPCIVGA}

// Findings reads the node. What cannot be read is in Problems; all else is returned.
func (h Host) Findings() Findings {
	findings := Findings{Labels: map[string]string{}, Unknown: map[string]bool{}}
	kernel := h.addKernel(&findings)
	h.addDevices(&findings, kernel)
	h.addOperatingSystem(&findings)
	return findings
}

// Same reports whether other has no difference that is worth a write.
func (f Findings) Same(other Findings) bool {
	a, b := maps.Clone(f.Labels), maps.Clone(other.Labels)
	delete(a, labels.FeatureTimestamp)
	delete(b, labels.FeatureTimestamp)
	return maps.Equal(a, b) && maps.Equal(f.Unknown, other.Unknown) && f.KeepFeatures == other.KeepFeatures &&
		f.GPUsOnBus == other.GPUsOnBus
}

// keeps reports whether the label stays as it is.
func (f Findings) keeps(key string) bool {
	return f.Unknown[key] || f.KeepFeatures && labels.IsFeature(key)
}

// set adds a label, unless its value is not valid in a label.
func (f *Findings) set(key, value string) {
	if value == "" {
		return
	}
	if !isValue(value) {
		f.Problems = append(f.Problems, fmt.Sprintf("%s is left out: %q is not a valid label value", key, value))
		return
	}
	f.Labels[key] = value
}

// markUnknown marks the labels as unknown, except for those that were read.
func (f *Findings) markUnknown(problem error, keys ...string) {
	f.Problems = append(f.Problems, problem.Error())
	for _, key := range keys {
		if _, known := f.Labels[key]; !known {
			f.Unknown[key] = true
		}
	}
}

// addKernel also returns the release of the kernel.
func (h Host) addKernel(findings *Findings) string {
	content, err := os.ReadFile(filepath.Join(h.ProcRoot, "sys", "kernel", "osrelease"))
	if err != nil {
		findings.markUnknown(fmt.Errorf("the kernel's release cannot be read; is procfs mounted at %s? %w", h.ProcRoot, err),
			labels.DiscoveryKernel)
		return ""
	}
	release := strings.TrimSpace(string(content))
	// As in Node Feature Discovery: the name of a precompiled driver image contains this.
	findings.set(labels.DiscoveryKernel, strings.Trim(forbidden.ReplaceAllString(release, "_"), "-_."))
	return release
}

func (h Host) addDevices(findings *Findings, kernel string) {
	devices, err := pci.Devices(h.SysRoot)
	findings.GPUsOnBus = countGPUs(devices)
	for _, device := range devices {
		switch {
		case device.IsGPU() && device.Class == pci.ThreeD:
			findings.Labels[labels.DiscoveryPCIPresent] = labels.True
			findings.Labels[labels.DiscoveryPCI3D] = labels.True
		case device.IsGPU():
			findings.Labels[labels.DiscoveryPCIPresent] = labels.True
			findings.Labels[labels.DiscoveryPCIVGA] = labels.True
		case device.IsMellanoxNIC():
			findings.Labels[labels.DiscoveryPCIMellanox] = labels.True
		}
	}
	if h.isWSL(kernel) {
		findings.Labels[labels.DiscoveryPCIPresent] = labels.True
	}
	if err != nil {
		findings.GPUsOnBus = 0
		findings.markUnknown(err, append(gpuLabels, labels.DiscoveryPCIMellanox)...)
	}
	_, found := findings.Labels[labels.DiscoveryPCIPresent]
	findings.NoGPU = !found && err == nil
}

// countGPUs returns how many GPUs are bound to the driver. Where there are 3D controllers, VGA controllers are left
// out: the device plugin does not advertise cards that are only for displays, such as that of a DGX Station.
func countGPUs(devices []pci.Device) int {
	classes := map[uint16]int{}
	for _, device := range devices {
		if device.IsGPU() && device.Driver == nvidiaModule {
			classes[device.Class]++
		}
	}
	if classes[pci.ThreeD] > 0 {
		return classes[pci.ThreeD]
	}
	return classes[pci.VGA]
}

// isWSL reports whether the node is a Windows Subsystem for Linux with GPUs. They are not PCI devices there;
// Windows mounts the user-space part of its driver.
func (h Host) isWSL(kernel string) bool {
	if !strings.Contains(strings.ToLower(kernel), "microsoft") {
		return false
	}
	for _, name := range []string{"libcuda.so.1", "nvidia-smi"} {
		if _, err := os.Stat(filepath.Join(h.Root, "usr", "lib", "wsl", "lib", name)); err == nil {
			return true
		}
	}
	return false
}

func (h Host) addOperatingSystem(findings *Findings) {
	fields, err := osrelease.Read(h.Root)
	version := fields[osrelease.VersionID]
	findings.set(labels.DiscoveryOSID, fields[osrelease.ID])
	findings.set(labels.DiscoveryOSVersion, version)
	findings.set(labels.DiscoveryOSTree, fields[osrelease.OSTreeVersion])
	major, minor := osrelease.SplitVersion(version)
	findings.set(labels.DiscoveryOSVersionMajor, major)
	findings.set(labels.DiscoveryOSVersionMinor, minor)
	if err != nil {
		findings.markUnknown(err, labels.DiscoveryOSID, labels.DiscoveryOSVersion, labels.DiscoveryOSTree,
			labels.DiscoveryOSVersionMajor, labels.DiscoveryOSVersionMinor)
	}
}

// isValue reports whether the value is valid in a label.
func isValue(value string) bool { return len(value) <= maxValue && valuePattern.MatchString(value) }
