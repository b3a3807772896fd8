// Package apply is the only writer of stack objects: server-side apply with one field owner, skipped
// while the live object already has all of the intent, and the removal of what is no longer wanted. Calls run
// concurrently, each with a deadline of its own, so that one that hangs delays no other. It knows no operand.
package apply
