// Package nodeapi calls the API server from a node: for the pod's own Node, and for the pods that a
// validation starts. It is plain HTTPS rather than client-go: the program is copied into other
// images' pods on every node, and client-go would make it several times as large.
package nodeapi
