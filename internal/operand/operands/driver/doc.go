// Package driver is the operand that installs the NVIDIA driver as a container: one DaemonSet for each pool of nodes
// that share an image.
package driver
