// Package image is the one place that knows the default images of the operands and how a
// reference is put together from repository, name and version. It is pure.
package image
