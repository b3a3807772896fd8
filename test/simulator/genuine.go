package simulator

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/test/simulator/host"
)

// reasonCreateError is the kubelet's reason if a container cannot be created from its manifest.
const reasonCreateError = "CreateContainerError"

// stopped is the grace period for the processes of a deleted pod, if the API has none.
const stopped = 30 * time.Second

// genuine reports whether the container's program really runs. A fault of the container replaces it, except that a
// fault which only concerns later starts does not end a running process.
func (c *container) genuine(at conditions) bool {
	if at.node.host == nil || c.program.verb == verbOther {
		return false
	}
	return at.fault == "" || c.process != nil && at.fault != CrashLoop
}

// runProcess advances a container whose program really runs: starts it, reads its exit code, and restarts it as a
// kubelet does, with growing backoff.
func (c *container) runProcess(at conditions) {
	switch c.phase {
	case waiting:
		if c.due.IsZero() {
			c.due = at.now
		}
		if reached(at.now, c.due) {
			c.launch(at)
		}
	case running:
		c.watchProcess(at)
	case terminated:
		if c.willRestart(at) && reached(at.now, c.due) {
			c.backOff(at)
		}
	}
}

// watchProcess checks a running container. One without a process was simulated while it had a fault.
func (c *container) watchProcess(at conditions) {
	if c.process == nil {
		c.launch(at)
		return
	}
	if exit, ended := c.process.Ended(); ended {
		c.process = nil
		reason := reasonCompleted
		if exit.Code != 0 {
			reason = reasonError
		}
		c.terminate(at.now, exit.Code, reason, exit.Message)
		if c.willRestart(at) {
			c.last = c.state().Terminated
			c.due = at.now.Add(at.timing.Crash)
		}
		return
	}
	c.probe(at)
}

// probe makes a running container ready. The toolkit is ready once gpu-node has executed it and its runtime has
// restarted, which takes no time here: its startup probe writes the marker.
func (c *container) probe(at conditions) {
	if c.ready || c.spec.StartupProbe == nil || !slices.Contains(
		c.spec.StartupProbe.Exec.Command, labels.RestartedCommand,
	) {
		c.becomeReady(at)
		return
	}
	if _, became := c.process.Became(); !became {
		return
	}
	if c.becomeReady(at); c.ready {
		if err := at.node.host.ConfirmRuntime(); err != nil {
			utilruntime.HandleError(err)
		}
	}
}

// willRestart reports whether a container that has exited is restarted: one that has failed, unless that fails its pod,
// and a main container of a pod that always restarts.
func (c *container) willRestart(at conditions) bool {
	switch at.pod.object.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyAlways:
		return c.exitCode != 0 || !at.init
	default:
		return c.exitCode != 0
	}
}

// launch starts the process. If that fails, the error is reported and the start is retried.
func (c *container) launch(at conditions) {
	process, err := at.start(host.Container{
		Pod: at.pod.object, Spec: c.spec, App: at.pod.app,
		HostIP: at.node.ip, PodIP: at.pod.ip, Injected: at.pod.handled,
	})
	if err != nil {
		c.wait(at.now, reasonCreateError, err.Error(), at.timing.backoff(c.pulls))
		c.pulls++
		return
	}
	if c.last != nil {
		c.restarts++
	}
	c.start(at.now)
	c.process = process
	c.probe(at)
}

// provides reports whether the container does the work of its pod: gpu-node has executed the other program, if it is
// to.
func (c *container) provides() bool {
	if !c.ready || c.process == nil || !c.process.Becomes() {
		return c.ready
	}
	_, became := c.process.Became()
	return became
}

// stop ends the container's process permanently, as when its pod is deleted.
func (c *container) stop(grace time.Duration) {
	if c.process == nil {
		return
	}
	c.process.Terminate()
	time.AfterFunc(grace, c.process.Kill)
}

// lingers reports whether a process of the container still runs.
func (c *container) lingers() bool {
	if c.process == nil {
		return false
	}
	_, ended := c.process.Ended()
	return !ended
}

// Host returns the machine of a node that runs processes; nil for any other node, and before the simulator has
// observed the node.
func (s *Simulator) Host(node string) *host.Host {
	s.lock.Lock()
	defer s.lock.Unlock()
	if n, ok := s.nodes[node]; ok {
		return n.host
	}
	return nil
}

// Dir returns the directory of the machines of nodes that run processes; empty if none can.
func (s *Simulator) Dir() string { return s.dir }

// CanRunProcesses returns why no node can run processes here, in one line; nil if they can.
func (s *Simulator) CanRunProcesses() error { return s.noProcesses }

// newHost creates the machine of a node that runs processes.
func (s *Simulator) newHost(n *node) (*host.Host, error) {
	info := n.object.Status.NodeInfo
	os, version := splitOS(info)
	made, err := host.New(host.Options{
		Node: n.name, Dir: s.hostDir(n), Programs: s.programs,
		Hardware: host.Hardware{
			OS: os, OSVersion: version, Kernel: info.KernelVersion, BootID: info.BootID,
			GPUs: int(n.gpus), DriverOnHost: n.driverOnHost,
		},
		Client: s.client, APIServer: s.server,
		Changed: func() { s.queue.Add(n.name) },
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the processes of node %s: %w", n.name, err)
	}
	return made, nil
}

// hostDir returns the directory of a node's machine. A re-created node has another one.
func (s *Simulator) hostDir(n *node) string { return filepath.Join(s.dir, n.name+"-"+string(n.uid)) }

// close ends the processes of the node. Files that cannot be removed are left to the operating system.
func (n *node) close() {
	if n.host == nil {
		return
	}
	if err := n.host.Close(); err != nil {
		utilruntime.HandleError(err)
	}
}
