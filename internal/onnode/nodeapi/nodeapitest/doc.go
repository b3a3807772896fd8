// Package nodeapitest is the API server in tests of on-node programs, over HTTPS as a pod reaches it: one
// that has a Node, or with answers of the test.
package nodeapitest
