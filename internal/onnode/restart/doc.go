// Package restart observes whether the process behind a socket of the host has restarted. The container toolkit
// writes the configuration of the container runtime and has the runtime restart, and no file says when that is done:
// pods that need the toolkit's handler cannot be made before.
package restart
