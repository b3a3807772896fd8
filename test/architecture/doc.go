// Package architecture checks the rules about imports themselves, which depguard enforces: that each package has one,
// and that none allows more than is used. It also checks that every test can fail.
package architecture
