// Package integration tells user stories on the real control plane: etcd, API server, controller
// manager, scheduler and simulated nodes, with the manager as its own process under the rights that
// the project ships. What it judges by is what a user, or the API server's audit log, can see.
package integration
