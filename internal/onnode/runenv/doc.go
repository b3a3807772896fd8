// Package runenv starts an operand with the environment that the driver's marker describes: what
// the shell entrypoints of NVIDIA's images do with "set -o allexport; . driver-ready", without a
// shell and without evaluating anything.
package runenv
