// Package metricsauth lets those read the manager's metrics who may: it has the API server review the token of
// each request and the right of its owner to get the path. It does what the filter of controller-runtime does,
// which would bring the API server's libraries into the manager: 10 MB of program and 16 MB of memory.
package metricsauth
