// Package scenarios are thirteen clusters as operators meet them. The plan of each is told as a story
// (internal/plan), and each is brought to rest on a real control plane (test/integration).
package scenarios
