// Package dropin tests that the operator is a drop-in replacement for NVIDIA's: each line that a user of NVIDIA's
// operator types, or has in a file, has the same effect here, or is refused with the remedy. It has a table for each
// group of such lines, installs the chart with the real Helm on a real API server, and reports how many are honoured.
package dropin
