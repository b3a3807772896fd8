package health

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
)

// procfsTimeout is how long the agent waits for what the driver shows in procfs: it may hold a lock for long, or hang.
const procfsTimeout = 2 * time.Second

// names knows the UUIDs of GPUs. The driver shows them in procfs, so that no GPU is opened.
type names struct {
	procRoot string

	mu     sync.Mutex
	known  map[string]string
	asking bool
}

// learn takes the UUID of a GPU from elsewhere.
func (n *names) learn(pci, uuid string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if gpuhealth.IsUUID(uuid) {
		n.known[pci] = uuid
	}
}

// complete adds the UUIDs of GPUs to the report, as far as they are known in time.
func (n *names) complete(report *gpuhealth.Report) {
	found := map[*string]string{}
	for i := range report.Faults {
		if fault := &report.Faults[i]; fault.SXid == 0 && fault.UUID == "" {
			found[&fault.UUID] = fault.PCI
		}
	}
	for i := range report.Notes {
		if note := &report.Notes[i]; note.PCI != "" && note.UUID == "" {
			found[&note.UUID] = note.PCI
		}
	}
	for i := range report.Past {
		if past := &report.Past[i]; past.UUID == "" {
			found[&past.UUID] = past.PCI
		}
	}
	n.learnMissing(slices.Collect(maps.Values(found)))
	n.mu.Lock()
	defer n.mu.Unlock()
	for uuid, pci := range found {
		*uuid = n.known[pci]
	}
}

// learnMissing asks for the UUIDs that are not known, unless it is asking already.
func (n *names) learnMissing(addresses []string) {
	var unknown []string
	n.mu.Lock()
	for _, pci := range addresses {
		if n.known[pci] == "" {
			unknown = append(unknown, pci)
		}
	}
	ask := len(unknown) > 0 && !n.asking
	n.asking = n.asking || ask
	n.mu.Unlock()
	if ask {
		n.askForUUIDs(unknown)
	}
}

// askForUUIDs reads the UUIDs, and waits for them at most procfsTimeout.
func (n *names) askForUUIDs(addresses []string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, pci := range addresses {
			if found := readUUID(n.procRoot, pci); found != "" {
				n.learn(pci, found)
			}
		}
		n.mu.Lock()
		n.asking = false
		n.mu.Unlock()
	}()
	select {
	case <-done:
	case <-time.After(procfsTimeout):
	}
}

// readUUID returns the UUID of the GPU; empty if the driver does not show it.
func readUUID(procRoot, pci string) string {
	// Until a GPU is initialized, its UUID has question marks.
	if uuid := information(procRoot, pci)["GPU UUID"]; gpuhealth.IsUUID(uuid) {
		return uuid
	}
	return ""
}
