// Package nodeapi calls the API server from a node: for the pod's own Node, and for the pods that a validation
// starts. It is plain HTTPS instead of client-go, because the program is copied into the pods of other images on
// every node, and client-go would make it several times as large.
package nodeapi
