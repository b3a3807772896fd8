// Package status computes the status of a policy. It is pure: Compute aggregates the entries of the fleet and the
// results of the pass. Package statuswriter writes the status.
package status
