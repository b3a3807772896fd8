// Package status computes the status of a policy, and is the only writer of ClusterPolicy.status. Compute is pure: it
// aggregates the entries of the fleet and what came of the pass. Writer limits how often the status is written, and
// records the Events of a policy.
package status
