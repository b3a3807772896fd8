package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Programs are the executables of the processes.
type Programs struct {
	// GPUNode is the operator's on-node program, StandIn the replacement for the programs of NVIDIA's images.
	GPUNode, StandIn string
	// CUDA is the program that runs a kernel on each GPU; the default is StandIn, as the real one needs a GPU.
	CUDA string
}

// Hardware describes a machine.
type Hardware struct {
	// OS and OSVersion are ID and VERSION_ID of /etc/os-release.
	OS, OSVersion string
	// Kernel is the full release.
	Kernel string
	// BootID is the id of the current boot.
	BootID string
	GPUs   int
	// DriverOnHost: the driver is part of the node's image.
	DriverOnHost bool
}

// Host is one machine. Its methods are safe for concurrent use, except for calls that concern the same container.
type Host struct {
	node     string
	dir      string
	hardware Hardware
	programs Programs
	client   kubernetes.Interface
	// service is the environment by which pods reach the API server.
	service []string
	// changed is called when a process has exited, or has executed another program.
	changed func()
	// log keeps the kernel log open, and logged counts its records.
	log    *os.File
	logged int

	lock sync.Mutex
	// processes are the running ones.
	processes []*Process
}

// Options configures a machine.
type Options struct {
	// Node is the name of the node, Dir a directory that does not exist yet.
	Node, Dir string
	Hardware  Hardware
	Programs  Programs
	// Client requests the tokens of the pods, which reach the API server at the URL APIServer.
	Client    kubernetes.Interface
	APIServer string
	// Changed is called, from another goroutine, whenever a process has exited or has executed another program.
	Changed func()
}

// New creates a machine that has just booted.
func New(o Options) (*Host, error) {
	service, err := serviceEnvironment(o.APIServer)
	if err != nil {
		return nil, err
	}
	h := &Host{
		node: o.Node, dir: o.Dir, hardware: o.Hardware, programs: o.Programs,
		client: o.Client, service: service, changed: o.Changed,
	}
	if err := h.install(); err != nil {
		return nil, errors.Join(fmt.Errorf("make the machine of node %s: %w", o.Node, err), os.RemoveAll(o.Dir))
	}
	return h, nil
}

// Root is the machine's root directory on this computer.
func (h *Host) Root() string { return filepath.Join(h.dir, "root") }

// Path returns the path on this computer of a path on the machine.
func (h *Host) Path(path string) string { return filepath.Join(h.Root(), path) }

// BootID returns the id of the machine's current boot.
func (h *Host) BootID() string { return h.hardware.BootID }

// Processes lists the running processes.
func (h *Host) Processes() []*Process {
	h.lock.Lock()
	defer h.lock.Unlock()
	return slices.Clone(h.processes)
}

// Log returns the output of all runs of a container, in all pods with that label "app".
func (h *Host) Log(app, container string) (string, error) {
	content, err := os.ReadFile(h.logFile(app, container))
	if err != nil {
		return "", fmt.Errorf("read the log of container %s of %s on node %s: %w", container, app, h.node, err)
	}
	return string(content), nil
}

func (h *Host) logFile(app, container string) string {
	return filepath.Join(h.dir, "logs", app+"_"+container+".log")
}

func (h *Host) podDir(uid types.UID) string { return filepath.Join(h.dir, "pods", string(uid)) }

// RemovePod ends the remaining processes of a pod and removes its files; its logs stay.
func (h *Host) RemovePod(uid types.UID) error {
	h.end(func(p *Process) bool { return p.PodUID == uid })
	if err := os.RemoveAll(h.podDir(uid)); err != nil {
		return fmt.Errorf("remove the files of pod %s: %w", uid, err)
	}
	return nil
}

// Close ends all processes and removes the machine.
func (h *Host) Close() error {
	h.end(func(*Process) bool { return true })
	_ = h.log.Close() // It fails if it is closed already.
	if err := os.RemoveAll(h.dir); err != nil {
		return fmt.Errorf("remove the machine of node %s: %w", h.node, err)
	}
	return nil
}

// end kills processes and waits until they have exited.
func (h *Host) end(which func(*Process) bool) {
	for _, p := range h.Processes() {
		if which(p) {
			p.Kill()
			<-p.done
		}
	}
}
