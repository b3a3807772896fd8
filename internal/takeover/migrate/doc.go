// Package migrate has what is known of the objects that NVIDIA's operator leaves on a cluster, and decides what becomes
// of them: which driver pods are as this operator would start them, and which objects nothing uses any more. It is
// pure. The steps of kubectl gpu migrate are in package migrationsteps.
package migrate
