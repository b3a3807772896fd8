package health

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/gpuhealth"
)

// uuidTimeout is how long a report waits for the UUID of a GPU: the driver may hold a lock for long.
const uuidTimeout = 2 * time.Second

// names knows the UUIDs of GPUs. The driver shows them in procfs, so that no GPU is opened.
type names struct {
	procRoot string

	mu     sync.Mutex
	known  map[string]string
	asking bool
}

// complete adds the UUIDs of GPUs to the faults, as far as they are known in time.
func (n *names) complete(faults []gpuhealth.Fault) {
	var unknown []string
	n.mu.Lock()
	for _, fault := range faults {
		if n.known[fault.PCI] == "" && fault.UUID == "" && fault.SXid == 0 {
			unknown = append(unknown, fault.PCI)
		}
	}
	ask := len(unknown) > 0 && !n.asking
	n.asking = n.asking || ask
	n.mu.Unlock()
	if ask {
		n.ask(unknown)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range faults {
		if faults[i].UUID == "" {
			faults[i].UUID = n.known[faults[i].PCI]
		}
	}
}

// ask reads the UUIDs, and waits for them at most uuidTimeout.
func (n *names) ask(addresses []string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, pci := range addresses {
			found := readUUID(n.procRoot, pci)
			n.mu.Lock()
			n.known[pci] = found
			n.mu.Unlock()
		}
		n.mu.Lock()
		n.asking = false
		n.mu.Unlock()
	}()
	select {
	case <-done:
	case <-time.After(uuidTimeout):
	}
}

// readUUID returns the UUID of the GPU; empty if the driver does not show it.
func readUUID(procRoot, pci string) string {
	content, err := os.ReadFile(filepath.Join(procRoot, "driver", "nvidia", "gpus", pci, "information"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(content)) {
		key, value, _ := strings.Cut(line, ":")
		// Until a GPU is initialized, its UUID has question marks.
		if uuid := strings.TrimSpace(value); strings.TrimSpace(key) == "GPU UUID" && gpuhealth.IsUUID(uuid) {
			return uuid
		}
	}
	return ""
}
