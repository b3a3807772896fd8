// Package metricsauth authenticates and authorizes requests for the manager's metrics: the API server reviews
// the token of each request and whether its owner may get the path. It does what the filter of
// controller-runtime does, which would link the API server's libraries into the manager: 10 MB of program and
// 16 MB of memory.
package metricsauth
