package simulator

import "sync"

// Mode is a way in which an operand's main container fails.
type Mode string

const (
	// CrashLoop: the container exits with 1 again and again, with growing pauses.
	CrashLoop Mode = "CrashLoop"
	// ImagePull: the image cannot be pulled. A container that already runs goes on.
	ImagePull Mode = "ImagePull"
	// NeverReady: the container runs, but its probes never pass.
	NeverReady Mode = "NeverReady"
	// DriverFails, of the driver alone: its nvidia-smi fails. A driver container that is not ready yet does
	// not get ready, one that is ready stays so, and nobody can prove the driver.
	DriverFails Mode = "DriverFails"
)

// driverOperand is the driver's name in its deploy label.
const driverOperand = "driver"

// place is an operand on a node.
type place struct {
	operand, node string
}

// faults is what is broken. It is written by the user of the simulator and read by its workers.
type faults struct {
	lock  sync.Mutex
	modes map[place]Mode
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

// of returns the fault of the first of these operands that has one on the node.
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

// Break puts a fault on the first main container of an operand's pods on a node, also of those that
// come later. The operand is named as in the deploy label, such as driver or operator-validator.
func (s *Simulator) Break(operand, node string, mode Mode) {
	s.faults.set(place{operand, node}, mode)
	s.queue.Add(node)
}

// Heal takes the fault away. A pause that has begun is waited out, as a kubelet does.
func (s *Simulator) Heal(operand, node string) {
	s.faults.clear(place{operand, node})
	s.queue.Add(node)
}
