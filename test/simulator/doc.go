// Package simulator simulates what needs hardware, against a real API server: GPU nodes as node discovery labels
// them, and their kubelet. It reads the pods that the scheduler binds to them and interprets their manifests: init
// containers run in order, "gpu-node wait" waits for the markers of that node, "gpu-node validate" needs what it
// validates and then sets its marker, the device plugin makes GPUs allocatable; a pod with the nvidia RuntimeClass
// cannot start before the toolkit runs. The init containers of NVIDIA's own operator are known, too: its validator, and
// shell loops that wait for a marker; both look every few seconds, as their programs do. Faults can be injected into
// any operand of any node.
//
// On a node with NodeSpec.Processes, containers whose command is gpu-node really run it, with the manifest's
// arguments and environment, on a machine below a temporary directory (package host). NVIDIA's programs stay
// simulated there, but create the files that gpu-node reads: the driver container its root, its modules and
// .driver-ctr-ready; k8s-driver-manager pauses the operands before a loaded driver is replaced.
// test/simulator/standin replaces the programs that gpu-node executes. A fault on such a container ends its process.
//
// With Options.Modules other nodes remember the loaded driver, too: it survives its pod. k8s-driver-manager pauses the
// operands, keeps an equal driver, and replaces another one only once no pod uses the GPUs. Simulator.Reboot loses it.
//
// The device plugin advertises what its configuration, its MIG strategy and the partitions of the node's GPUs make of
// them; gpu-node configure chooses the configuration by the label of the Node. On nodes with NodeSpec.Model GPU Feature
// Discovery writes its labels, and the MIG manager partitions the GPUs: it pauses the operands, fails while pods use
// GPUs, and can be made to fail or never to end. The annotation UnhealthyAnnotation makes GPUs unhealthy. The health
// agent reports healthy GPUs there; on a node with processes it reads a kernel log that XidAnnotation writes to.
//
// It is driven by watches and timers, writes one status for each transition and nothing without a change. The state
// of a node is owned by the worker that has the node's queue key, so it needs no locks. The exit of a process is an
// event for that queue. The state is not persisted: a simulator must live as long as its nodes.
//
// It does not cover kernel modules, containers, executed probes and defects of the kubelet. It retries a sandbox
// immediately, where a kubelet takes 10 to 15 s.
package simulator
