// Package nodeapitest is an API server for tests of on-node programs. It has one Node, and speaks HTTPS.
package nodeapitest
