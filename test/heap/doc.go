// Package heap measures the memory of the process of a test.
package heap
