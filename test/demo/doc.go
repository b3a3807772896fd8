// Command demo shows what the operator does, and only needs Go: it starts a real control plane and simulated GPU
// nodes, installs the operator and runs it with the permissions of its own ServiceAccount, applies the sample
// ClusterPolicy, and draws each node's progress through the stages until all are ready. "make demo" runs it.
//
// With TOUR=1 it runs the commands of a tour instead, and checks what they print.
//
// The stages are computed from the pods and the nodes, with the operator's own functions, as the operator does not
// publish stages that only last some seconds. What it publishes is shown next to them.
package main
