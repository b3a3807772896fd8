// Package cli has no code; its folders answer what kubectl gpu prints: package overview is for status, package page for
// its page in a browser, package preview for plan, diff, render and parts of migrate, package explain for explain,
// package gpuusage for top, and package migrationsteps for migrate. All are pure: objects of a cluster in, a result
// out. The commands themselves are in cmd/kubectl-gpu.
//
// Only that program may import them.
//
// Begin with package overview.
package cli
