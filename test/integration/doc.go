// Package integration has end-to-end tests on a real control plane: etcd, API server, controller manager, scheduler
// and simulated nodes, with the manager as a separate process with its shipped permissions. The tests only check what
// a user can observe, and the API server's audit log.
package integration
