// Package effective has the defaults of the ClusterPolicy: what each field means that a policy leaves out.
// They are filled in when a policy is used and never stored, so that a policy reads back as it was applied, and
// a later release may choose better ones. It is pure, and imports the types of the API and package labels alone.
//
// The functions read as tables: a line for each field, with its default and the source. NVIDIA: how NVIDIA's
// operator treats an absent field; where its chart sets another value, the comment has it. Own: a field or a
// choice of this operator.
//
// What NVIDIA's operator accepts in several forms gets one: see normalise. Variables in driver.env set some fields of
// the driver that are left out: see variables.
//
// operandBlocks fills in what the blocks of all operands have in common, also for an operand that no function here
// has a table for: that one is off by default.
//
// A spec from Of is complete: every block is set, and every field that has one default has a value. These fields
// have none here, and stay as the user left them:
//
//   - migManager.config: if it is present, nodes are labelled with a MIG layout. What it leaves out is filled in.
//   - repository, image and version of an image: internal/policy/image fills them key by key, for each component.
//   - Fields that fall back to another block: tolerations, nodeSelector and priorityClassName of an operand to
//     those of daemonsets, imagePullPolicy of nodeStatusExporter to that of validator. Messages name the block
//     that is in effect.
//   - Fields that depend on another field or on the operand: dcgmExporter.hostNetwork, which follows from the
//     engine that env names, and daemonsets.rollingUpdate.maxUnavailable, which Spec.MaxUnavailable fills in.
//   - Fields with defaults elsewhere: resources, probes other than the start-up probe, mig.strategy, the parts of
//     serviceMonitor that Prometheus has defaults for, ccManager.defaultMode.
//   - Fields for which the keys of a referenced object decide: driver.licensingConfig.nlsEnabled, and
//     devicePlugin.config.default.
//   - sharing: an empty block in a node pool shares nothing, an absent one shares as spec.sharing.
//   - nodePools: what one leaves out is as in the rest of the spec, which Spec.ForNodePool fills in.
//   - Names of ConfigMaps, Secrets, proxies and mirrors, where empty means none.
//   - Deprecated fields, which are ignored: operator.defaultRuntime, operator.initContainer,
//     driver.useOpenKernelModules, dcgm.hostPort, cdi.default, psp, kataManager.
//
// Other variables in env are no fields: their defaults are documented with the operand.
package effective
