// Package needs decides what happens to a test that this machine cannot run: a person's laptop may lack something,
// CI may not.
package needs
