// Package neighbour recognises what others run on GPU nodes and the operator runs, too: device plugins, GPU Feature
// Discovery, DCGM exporters and DCGM host engines; and what offers GPUs in its place, the DRA driver.
//
// It is pure: a pod in, what it is out. Pods of an operand of this operator are none, and neither are those that an
// operator in the same namespace has installed: they are about to be taken over.
package neighbour
