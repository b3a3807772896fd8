// Package metricsauth authenticates and authorizes requests for the manager's metrics by reviews of the API server,
// whose answers it caches for up to a minute. The API server reviews the token, and whether its owner may get the path.
// The filter of controller-runtime does that as well, but would link the API server's libraries into the manager: 10 MB
// of program and 16 MB of memory.
package metricsauth
