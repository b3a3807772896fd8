// Package statuswriter is the only writer of ClusterPolicy.status. It limits how often a status is written, by how
// significant its changes are, and records the Events of a policy.
package statuswriter
