// Package leadership prevents writes by an operator that may no longer be the leader.
//
// Leader election alone does not: a process that is suspended for longer than its lease, with its machine for
// example, resumes where it was, and writes until its next attempt to renew the lease fails. The Guard compares
// the time of each write with that of the last renewal. A request already on the wire is still answered.
package leadership
