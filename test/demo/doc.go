// Command demo shows what the operator does, with nothing but Go: it starts a real control plane
// and simulated GPU nodes, installs the operator as a cluster would and runs it with the rights of
// its own ServiceAccount, applies the sample ClusterPolicy, and draws each node's way up the ladder
// until all are ready. "make demo" runs it.
//
// The ladder is drawn from the pods and the nodes, with the operator's own functions: the operator
// does not write stages that last only some seconds. What it does write stands beside it.
package main
