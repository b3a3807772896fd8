// Package image puts references of images together from repository, name and version, and knows the
// operator's own image. Those of the operands stand with the operands. It is pure.
package image
