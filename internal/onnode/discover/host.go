package discover

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/osrelease"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/pci"
)

// maxValue is the length of a label's value, and of the name in its key, that Kubernetes allows.
const maxValue = 63

var (
	valuePattern = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$`)
	forbidden    = regexp.MustCompile(`[^A-Za-z0-9_.-]`)
)

// Host tells where a node's own description is found.
type Host struct {
	// SysRoot and ProcRoot are where sysfs and procfs are mounted. Any container's are the node's.
	SysRoot, ProcRoot string
	// Root is where the host's /usr/lib is mounted, and /etc if that is at hand. The first has all that is
	// read, unless /etc/os-release is no link, as os-release(5) says it should be.
	Root string
}

// Facts are what a node tells of itself.
type Facts struct {
	// Labels are the facts that hold.
	Labels map[string]string
	// Unknown has the labels whose facts could not be read.
	Unknown map[string]bool
	// KeepFeatures tells the same of the labels of GPU Feature Discovery.
	KeepFeatures bool
	// NoGPU tells that there is certainly no GPU.
	NoGPU bool
	// Problems are sentences that say what could not be read and what was left out.
	Problems []string
}

// gpuLabels tell of a GPU; readers take one for as good as another.
var gpuLabels = []string{labels.DiscoveryPCIPresent, labels.DiscoveryPCI3D, labels.DiscoveryPCIVGA}

// Facts reads what the node tells of itself, each time anew. What cannot be read is among the problems,
// and everything else is told nevertheless.
func (h Host) Facts() Facts {
	facts := Facts{Labels: map[string]string{}, Unknown: map[string]bool{}}
	kernel := h.kernel(&facts)
	h.devices(&facts, kernel)
	h.operatingSystem(&facts)
	return facts
}

// Same tells whether there is nothing new in other that is worth a write.
func (f Facts) Same(other Facts) bool {
	a, b := maps.Clone(f.Labels), maps.Clone(other.Labels)
	delete(a, labels.FeatureTimestamp)
	delete(b, labels.FeatureTimestamp)
	return maps.Equal(a, b) && maps.Equal(f.Unknown, other.Unknown) && f.KeepFeatures == other.KeepFeatures
}

// keeps tells whether the label stays as it is.
func (f Facts) keeps(key string) bool {
	return f.Unknown[key] || f.KeepFeatures && labels.IsFeature(key)
}

// set tells a fact, unless no label can.
func (f *Facts) set(key, value string) {
	if value == "" {
		return
	}
	if !isValue(value) {
		f.Problems = append(f.Problems, fmt.Sprintf("%s is left out: %q is not a value that a label can have", key, value))
		return
	}
	f.Labels[key] = value
}

// unknown tells that the facts cannot be read, but for those that are known nevertheless.
func (f *Facts) unknown(problem error, keys ...string) {
	f.Problems = append(f.Problems, problem.Error())
	for _, key := range keys {
		if _, known := f.Labels[key]; !known {
			f.Unknown[key] = true
		}
	}
}

// kernel returns the release of the kernel, too.
func (h Host) kernel(facts *Facts) string {
	content, err := os.ReadFile(filepath.Join(h.ProcRoot, "sys", "kernel", "osrelease"))
	if err != nil {
		facts.unknown(fmt.Errorf("the kernel's release cannot be read; is procfs mounted at %s? %w", h.ProcRoot, err),
			labels.DiscoveryKernel)
		return ""
	}
	release := strings.TrimSpace(string(content))
	// As Node Feature Discovery does it: the name of a precompiled driver image is made of this.
	facts.set(labels.DiscoveryKernel, strings.Trim(forbidden.ReplaceAllString(release, "_"), "-_."))
	return release
}

func (h Host) devices(facts *Facts, kernel string) {
	devices, err := pci.Devices(h.SysRoot)
	for _, device := range devices {
		switch {
		case device.IsGPU() && device.Class == pci.ThreeD:
			facts.Labels[labels.DiscoveryPCIPresent] = labels.True
			facts.Labels[labels.DiscoveryPCI3D] = labels.True
		case device.IsGPU():
			facts.Labels[labels.DiscoveryPCIPresent] = labels.True
			facts.Labels[labels.DiscoveryPCIVGA] = labels.True
		case device.IsMellanoxNIC():
			facts.Labels[labels.DiscoveryPCIMellanox] = labels.True
		}
	}
	if h.isWSL(kernel) {
		facts.Labels[labels.DiscoveryPCIPresent] = labels.True
	}
	if err != nil {
		facts.unknown(err, append(gpuLabels, labels.DiscoveryPCIMellanox)...)
	}
	_, found := facts.Labels[labels.DiscoveryPCIPresent]
	facts.NoGPU = !found && err == nil
}

// isWSL tells whether the node is a Windows Subsystem for Linux with GPUs. They are no PCI devices of
// it; Windows mounts the user-space part of its driver.
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

func (h Host) operatingSystem(facts *Facts) {
	fields, err := osrelease.Read(h.Root)
	version := fields[osrelease.VersionID]
	facts.set(labels.DiscoveryOSID, fields[osrelease.ID])
	facts.set(labels.DiscoveryOSVersion, version)
	facts.set(labels.DiscoveryOSTree, fields[osrelease.OSTreeVersion])
	major, minor := osrelease.SplitVersion(version)
	facts.set(labels.DiscoveryOSVersionMajor, major)
	facts.set(labels.DiscoveryOSVersionMinor, minor)
	if err != nil {
		facts.unknown(err, labels.DiscoveryOSID, labels.DiscoveryOSVersion, labels.DiscoveryOSTree,
			labels.DiscoveryOSVersionMajor, labels.DiscoveryOSVersionMinor)
	}
}

// isValue tells whether a label can have the value.
func isValue(value string) bool { return len(value) <= maxValue && valuePattern.MatchString(value) }
