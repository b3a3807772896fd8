// Package atomicfile writes files that other processes watch: a reader sees the whole new file or
// none of it.
package atomicfile
