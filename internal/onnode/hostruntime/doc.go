// Package hostruntime asks the container runtimes of a host for the configuration that they run with, which may not be
// the one in their files any more, and makes them read these again.
package hostruntime
