// Package explain computes why the GPUs of a node cannot be used, and why a pod does not get its GPU, each with the
// evidence and the next step. It is pure: objects of the API in, an explanation out.
//
// What is wrong with a node is what the operator has reported; package reasons has the next step. What keeps a pod from
// a node is computed as kube-scheduler does, with the library that it uses.
package explain
