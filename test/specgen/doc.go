// Package specgen generates specs of a ClusterPolicy from its CRD: all fields, valid values of each, and random
// specs. Tests use it to check that every field has an effect, and that no combination breaks the operator.
package specgen
