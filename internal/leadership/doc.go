// Package leadership keeps an operator from writing that may not be the leader any more.
//
// Leader election alone does not: a process that is frozen for longer than its lease, as by a suspended machine, goes on
// where it was, and writes until its next attempt to renew the lease fails. The Guard compares the time of each write with
// that of the last renewal. A request that was on the wire already is answered all the same.
package leadership
