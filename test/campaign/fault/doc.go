// Package fault is a proxy between the operator and the API server that makes calls fail as it is told: by rules, which
// are data. It keeps a record of the operator's writes. All answers are JSON, so that the frames of watches can be held,
// dropped and repeated.
package fault
