// Package containertoolkit is the operand that installs NVIDIA's container runtime on the nodes and
// configures the container runtime to use it. Its pod also proves the driver to all other pods.
package containertoolkit
