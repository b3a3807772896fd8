// Package probe has the start-up probes of the driver container and of the container toolkit. The kubelet runs them in
// these containers, through gpu-node.
package probe
