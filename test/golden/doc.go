// Package golden compares what tests get with golden files. UPDATE_GOLDEN=1 writes them.
package golden
