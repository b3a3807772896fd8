// Package migration tests the change from NVIDIA's operator to this one, and back, in a running cluster: on a real
// control plane with simulated GPU nodes, and with the objects that NVIDIA's operator leaves.
package migration
