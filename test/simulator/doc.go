// Package simulator plays what needs hardware, against a real API server: GPU nodes as node
// discovery labels them, and their kubelet. It reads the pods that the scheduler binds to them and
// interprets what their manifests say: init containers run in order, "gpu-node wait" waits for the
// markers of that node, "gpu-node validate" needs what it proves and then sets its marker, the
// device plugin makes GPUs allocatable, a pod of the nvidia runtime class cannot start before the
// toolkit runs. Faults can be put on any operand of any node.
//
// On a node with NodeSpec.Processes, containers whose command is gpu-node really run it, with the
// manifest's arguments and environment, in a machine below a temporary directory (package host). What
// is NVIDIA's stays simulated there, but puts the files where gpu-node looks for them: the driver
// container its root, its modules and .driver-ctr-ready; k8s-driver-manager pauses the operands before a
// loaded driver is replaced. What gpu-node becomes is played by test/simulator/standin. A fault on such
// a container takes its process away.
//
// It is driven by watches and timers, writes one status for each real transition and nothing when
// nothing changes. All of a node's state is owned by the worker that holds the node's queue key, so
// there are no locks around it. The end of a process is an event for that queue. The state is not
// persisted: a simulator lives as long as its nodes.
//
// What it cannot show: kernel modules, containers, probes that run, a kubelet's own mistakes. It
// retries a sandbox at once where a kubelet takes 10 to 15 s.
package simulator
