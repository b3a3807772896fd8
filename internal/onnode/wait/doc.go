// Package wait blocks until a condition on a directory becomes true, woken by the kernel (inotify) rather than by
// a sleep: the hand-over from one operand to the next takes milliseconds. The directory need not exist yet.
// Polling is the safety net, for what inotify does not report (a volume mounted over the directory) and for nodes
// that have no inotify instance left.
package wait
