// Package migrationsteps is pure: what a migration from NVIDIA's operator, or back to it, would change in a cluster,
// and the steps of it that no installer takes. Command kubectl gpu migrate reads the cluster, prints the Report and
// carries out the steps.
package migrationsteps
