// Package fault implements a proxy between the operator and the API server that makes requests fail by rules, which
// are data. It records the operator's writes. All responses are JSON, so that the frames of watches can be held,
// dropped and repeated.
package fault
