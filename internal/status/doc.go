// Package status computes ClusterPolicy.status from the entries of the fleet and the results of a pass. It is pure: it
// never calls the API server nor assesses a node. It is the last step of a pass; package statuswriter writes the
// result.
package status
