package simulator

import (
	"maps"
	"slices"
	"sync"
)

// Mode is a way in which an operand's main container fails.
type Mode string

const (
	// CrashLoop: the container exits with 1 repeatedly, with growing backoff.
	CrashLoop Mode = "CrashLoop"
	// ImagePull: the image cannot be pulled. A container that already runs is not affected.
	ImagePull Mode = "ImagePull"
	// NeverReady: the container runs, but its probes never succeed.
	NeverReady Mode = "NeverReady"
	// LosesGPU, only for the validator: the container ends as gpu-node recheck does when one of eight GPUs is gone.
	LosesGPU Mode = "LosesGPU"
	// DriverFails, only for the driver: its nvidia-smi fails. A driver container that is not ready yet does not become
	// ready, a ready one stays ready, and no container can validate the driver.
	DriverFails Mode = "DriverFails"
)

// crashes reports whether a container with the fault ends again and again.
func (m Mode) crashes() bool { return m == CrashLoop || m == LosesGPU }

// RepairAnnotation of a Node ends the fault of the operand that it names, as Heal does: a user of the demo repairs a
// node with kubectl.
const RepairAnnotation = "demo/repair"

// driverOperand is the driver's name in its deploy label.
const driverOperand = "driver"

// place is an operand on a node.
type place struct {
	operand, node string
}

// faults are the injected faults. The user of the simulator writes them and its workers read them.
type faults struct {
	lock  sync.Mutex
	modes map[place]Mode
	// images are the modes of containers by their images.
	images map[string]Mode
}

func (f *faults) set(at place, mode Mode) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.modes == nil {
		f.modes = map[place]Mode{}
	}
	f.modes[at] = mode
}

func (f *faults) clear(at place) {
	f.lock.Lock()
	defer f.lock.Unlock()
	delete(f.modes, at)
}

// of returns the first fault of these operands on the node.
func (f *faults) of(node string, operands []string) Mode {
	f.lock.Lock()
	defer f.lock.Unlock()
	for _, operand := range operands {
		if mode, ok := f.modes[place{operand, node}]; ok {
			return mode
		}
	}
	return ""
}

// ofImage returns the fault of an image.
func (f *faults) ofImage(image string) Mode {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.images[image]
}

// BreakImage injects a fault into the containers of an image, on all nodes; an empty mode removes it.
func (s *Simulator) BreakImage(image string, mode Mode) {
	s.faults.lock.Lock()
	if s.faults.images == nil {
		s.faults.images = map[string]Mode{}
	}
	s.faults.images[image] = mode
	s.faults.lock.Unlock()
	for _, name := range s.nodeNames() {
		s.queue.Add(name)
	}
}

// nodeNames returns the names of the nodes that the simulator has seen.
func (s *Simulator) nodeNames() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.Collect(maps.Keys(s.nodes))
}

// Break injects a fault into the first main container of an operand's present and future pods on a node. The operand
// is named as in the deploy label, such as driver or operator-validator.
func (s *Simulator) Break(operand, node string, mode Mode) {
	s.faults.set(place{operand, node}, mode)
	s.queue.Add(node)
}

// Heal removes the fault. A backoff that has begun runs to its end, as with a kubelet.
func (s *Simulator) Heal(operand, node string) {
	s.faults.clear(place{operand, node})
	s.queue.Add(node)
}
