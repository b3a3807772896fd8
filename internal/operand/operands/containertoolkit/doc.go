// Package containertoolkit is the operand that installs NVIDIA's container runtime on the nodes and configures the
// container runtime to use it. Its pod also validates the driver for all other pods.
package containertoolkit
