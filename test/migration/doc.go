// Package migration tests the change from NVIDIA's operator to this one, and back, in a running cluster: on a real
// control plane with simulated GPU nodes, with NVIDIA's own operator of one release, and with the objects that others
// leave.
package migration
