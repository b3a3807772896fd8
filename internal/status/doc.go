// Package status computes, purely, what the operator says about the policy and about each node, and
// is the only writer of ClusterPolicy.status.
package status
