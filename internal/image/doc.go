// Package image has the default images of the operands and builds references from repository, name and
// version. It is pure.
package image
