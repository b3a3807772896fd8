// Package safeversion has the minimum safe versions of NVIDIA's components: those that fix the known vulnerabilities
// of the version. It is pure.
package safeversion
