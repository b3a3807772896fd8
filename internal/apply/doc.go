// Package apply is the only writer of stack objects: server-side apply with one field owner, skipped
// while the live object already says the same, and the removal of what is no longer wanted. It
// knows no operand.
package apply
