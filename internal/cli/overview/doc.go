// Package overview computes what people see of the GPUs of a cluster: for each node how far it is, what it offers and
// what of that is free. It is pure, and owns the JSON that kubectl gpu status prints.
//
// Readiness is not derived again: it is what the operator has written into the Node's condition and into the status of
// the policy. Only the GPUs of nodes that the status does not list are counted here, by package readiness.
package overview
