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

// Programs are the files that processes are started from.
type Programs struct {
	// GPUNode is the operator's on-node program, StandIn what plays the programs of NVIDIA's images.
	GPUNode, StandIn string
	// CUDA is the program that runs a kernel on each GPU; the default is the stand-in, as a real one
	// needs a GPU.
	CUDA string
}

// Hardware is what a machine is like.
type Hardware struct {
	// OS and OSVersion are ID and VERSION_ID of /etc/os-release.
	OS, OSVersion string
	// Kernel is the full release.
	Kernel string
	// BootID names the present boot.
	BootID string
	GPUs   int
	// DriverOnHost: the driver is part of the node's image.
	DriverOnHost bool
}

// Host is one machine. Its methods can be called from several goroutines, but all that concerns one
// container must come from one at a time.
type Host struct {
	node     string
	dir      string
	hardware Hardware
	programs Programs
	client   kubernetes.Interface
	// service is the environment by which pods find the API server.
	service []string
	// changed is called when a process has ended, or has become another program.
	changed func()

	lock sync.Mutex
	// processes are those that run.
	processes []*Process
}

// Options says what to make.
type Options struct {
	// Node is the name of the node, Dir a directory that does not exist yet.
	Node, Dir string
	Hardware  Hardware
	Programs  Programs
	// Client requests the tokens of the pods, which find the API server at APIServer, a URL.
	Client    kubernetes.Interface
	APIServer string
	// Changed is called, from another goroutine, whenever a process has ended or has become another
	// program.
	Changed func()
}

// New makes a machine that has just been booted.
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

// Path is where a path of the machine lies on this computer.
func (h *Host) Path(path string) string { return filepath.Join(h.Root(), path) }

// BootID names the machine's present boot.
func (h *Host) BootID() string { return h.hardware.BootID }

// Processes lists those that run.
func (h *Host) Processes() []*Process {
	h.lock.Lock()
	defer h.lock.Unlock()
	return slices.Clone(h.processes)
}

// Log returns all that the runs of a container have written, of all pods with that label "app".
func (h *Host) Log(app, container string) (string, error) {
	content, err := os.ReadFile(h.logFile(app, container))
	if err != nil {
		return "", fmt.Errorf("read what container %s of %s on node %s has written: %w", container, app, h.node, err)
	}
	return string(content), nil
}

func (h *Host) logFile(app, container string) string {
	return filepath.Join(h.dir, "logs", app+"_"+container+".log")
}

func (h *Host) podDir(uid types.UID) string { return filepath.Join(h.dir, "pods", string(uid)) }

// RemovePod ends what still runs of a pod and removes its files; its logs stay.
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
	if err := os.RemoveAll(h.dir); err != nil {
		return fmt.Errorf("remove the machine of node %s: %w", h.node, err)
	}
	return nil
}

// end kills processes and waits until they are gone.
func (h *Host) end(which func(*Process) bool) {
	for _, p := range h.Processes() {
		if which(p) {
			p.Kill()
			<-p.done
		}
	}
}
