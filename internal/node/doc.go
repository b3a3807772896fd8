// Package node has no code; its folders answer how far a node is: package readiness derives the verdicts of live
// objects, package assess the verdict on the node, package miglog why a MIG layout failed. The others answer what the
// operator writes on a Node and why it removes that. All are pure; package controller/node reads the input and writes
// the result.
//
// The rooms cluster, status, removal and cli may import them.
//
// Begin with package assess: its Assessment is what the condition nvidia.com/GPUReady and the status show.
package node
