// Package scenarios has thirteen typical clusters. A golden file has the plan of each (internal/stack/plan), and each
// is reconciled on a real control plane (test/integration).
package scenarios
