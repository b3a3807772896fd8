// Package pluginlink links the configuration of NVIDIA's device plugin that a label of the node selects, and signals
// the program that reads it. It does what config-manager of the device plugin does, but only once it has read the node:
// that one begins as on a node without the label, so that a new pod, or one whose config-manager restarts, first serves
// the default configuration.
//
// The link is replaced atomically. A signal is sent only where the link has changed, also if this program ended between
// the two. It goes to the processes that were started by the exact name and see the same volume with the link: pods
// with the host's process IDs see those of other pods, too.
package pluginlink
