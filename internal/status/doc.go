// Package status computes ClusterPolicy.status from the entries of the fleet and the results of a pass. It is pure: it
// never calls the API server nor assesses a node. Package statuswriter writes the result at the end of a pass.
package status
