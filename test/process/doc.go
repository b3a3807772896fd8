// Package process starts the children of tests and of the demo so that none outlives them, however
// they end.
package process
