// Package nodeapitest is the API server in tests of on-node programs, over HTTPS as in a pod: one that has a Node, or
// one with a handler of the test.
package nodeapitest
