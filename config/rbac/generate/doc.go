// Command generate writes the manifests that install the operands' ServiceAccounts and rights with the operator:
// config/rbac/operands, from the file install.yaml in each operand's folder in assets, and the binding of OpenShift's
// security context constraints in config/openshift. It also writes the role of people who read with kubectl gpu, from
// the table of package viewer. Run it by make manifests.
package main
