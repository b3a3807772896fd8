// Package drift compares an intent with the live object: which fields differ or were added, and which field manager set
// them. It is pure; package apply calls it before and after each write, and writes the repair.
package drift
