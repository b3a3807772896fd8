// Package nodemarks is pure: what the operator has written on a Node, and the changes that remove it and nothing of
// other writers. The node controller releases nodes by it, and kubectl gpu cleanup without the operator.
package nodemarks
