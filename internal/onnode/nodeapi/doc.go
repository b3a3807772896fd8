// Package nodeapi reads the pod's own Node from the API server, and of it only the resources. It is
// a plain HTTPS request rather than client-go: the program is copied into other images' pods on
// every node, and client-go would make it several times as large.
package nodeapi
