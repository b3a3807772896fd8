// Package status computes ClusterPolicy.status from the entries of the fleet and the results of a pass. It is pure: it
// never calls the API server nor assesses a node. Package statuswriter writes the result at the end of a pass.
//
// # Room
//
// The folders beside it are statuswriter, the only writer of the status; conditions, those of a policy that follow
// from neither nodes nor operands; reasons, the meaning of each reason; and metrics, the operator's own. Only
// controllers, the manager and the commands of kubectl gpu import them.
package status
