// Package takeover has no code; its folders answer what others have installed on GPU nodes, and what becomes of it:
// package otheroperator detects NVIDIA's operator at work, package migrate knows what it leaves, and package neighbour
// recognises device plugins, exporters and the DRA driver of others.
//
// The rooms node and cluster, the controllers and the commands of kubectl gpu may import them.
//
// Begin with package otheroperator.
package takeover
