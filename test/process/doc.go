// Package process starts the child processes of tests and the demo so that none outlives them, however they end.
package process
