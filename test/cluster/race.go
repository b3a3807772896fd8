//go:build race

package cluster

// raceDetector is on in a test that is built with it, and then in the operator that it runs.
const raceDetector = true
