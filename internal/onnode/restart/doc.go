// Package restart detects whether the process behind a socket of the host has restarted. The container toolkit
// configures the container runtime and restarts it, and no file shows when that is done. Pods that need the
// toolkit's handler cannot be created before.
package restart
