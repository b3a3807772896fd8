// Package apply is the only writer of stack objects: server-side apply with one field owner, skipped while the live
// object already has all of the intent, and the deletion of what is no longer wanted. Calls run concurrently, each with a
// deadline of its own, so that one that hangs delays no other. What failed, or came back otherwise than it was applied, is
// returned as an error and tried again by a back-off. It knows no operand.
package apply
