// Package effective knows the defaults of the ClusterPolicy: what each field means that a policy leaves out.
// They are filled in when a policy is used and never stored, so that what was applied reads back the same, and
// a later release may choose better ones. It is pure, and imports the types of the API alone.
//
// The functions read as tables: a line for each field, with its default and where that comes from. NVIDIA is what
// NVIDIA's operator takes an absent field for; where its chart writes something else, that is told. Own is a field
// or a choice of this operator.
//
// What the blocks of all operands have in common needs no line: operandBlocks fills it in, also for an operand that no
// function here knows, which is then off by default.
//
// What a spec from Of holds is what holds in the cluster: every block is there, and every field that has one
// default has a value. These fields have none here, and stay as the user left them:
//
//   - migManager.config: that it is there has nodes labelled with a layout. What it leaves out is filled in.
//   - repository, image and version of an image: internal/image fills them key by key, for each component.
//   - What falls back to another block: tolerations, nodeSelector and priorityClassName of an operand to those
//     of daemonsets, imagePullPolicy of nodeStatusExporter to that of validator. Who reads them tells the user
//     which of the two is meant.
//   - What another field or the operand decides: dcgmExporter.hostNetwork, which follows from the engine that
//     env names, and daemonsets.rollingUpdate.maxUnavailable, which Spec.MaxUnavailable fills in.
//   - What is left to a program: resources, probes beyond the start-up probe, mig.strategy, the parts of
//     serviceMonitor that Prometheus has defaults for, ccManager.defaultMode.
//   - nodePools: what one leaves out is as in the rest of the spec, which Spec.ForPool fills in.
//   - Names of ConfigMaps, Secrets, proxies and mirrors where none is meant if none is given.
//   - Deprecated fields, which nobody reads: operator.defaultRuntime, operator.initContainer,
//     driver.useOpenKernelModules, dcgm.hostPort, cdi.default, psp, kataManager.
//
// Variables in env are no fields: what a program does without one stands with the operand that runs it.
package effective
