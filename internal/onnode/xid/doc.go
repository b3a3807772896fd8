// Package xid is pure: what the errors mean that the NVIDIA driver writes into the kernel log. An Xid is an error of a
// GPU, an SXid one of an NVSwitch. table.go has the class and the reason of each Xid, parse.go reads the lines.
package xid
