// Package filelock makes processes and goroutines that build the same files, such as parallel tests, wait for each
// other.
package filelock
