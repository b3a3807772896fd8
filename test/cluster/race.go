//go:build race

package cluster

// raceDetector reports whether this program is built with the race detector; then so is the operator that it runs.
const raceDetector = true
