// Package onnode has no code; its folders answer what runs on each node, in the programs gpu-node and gpu-node-cuda:
// waits for the parts of the stack, their validation, node discovery, the health agent, the exporter, the configuration
// of the device plugin (pluginlink), and the clean-up of a host. Package hostruntime reloads the container runtime;
// package restart detects that it has restarted.
//
// They import no Kubernetes client, so that the programs stay small, and of the other rooms little but names.
//
// Begin with package marker: the markers are how the pods of a node learn what works there.
package onnode
