package v1

// Condition types of a ClusterPolicy.
const (
	// ConditionReady: every GPU node can be used as the spec requests.
	ConditionReady = "Ready"
	// ConditionAuxiliaryReady: the operands that are not needed to use GPUs, such as the exporters, are ready on every
	// node that needs them. Ready does not depend on it. An invalid spec of such an operand, or an object of it that
	// cannot be applied, still makes Ready False.
	ConditionAuxiliaryReady = "AuxiliaryReady"
	// ConditionProgressing: at least one node or operand is not ready yet and is expected to become ready.
	ConditionProgressing = "Progressing"
	// ConditionDegraded: something failed, and waiting is not expected to fix it. A failed call to the API server counts,
	// too, although it is repeated.
	ConditionDegraded = "Degraded"
	// ConditionError is the inverse of Ready, for compatibility with NVIDIA's operator.
	ConditionError = "Error"
	// ConditionStalled: a person must act before the policy can become ready: its spec is wrong or not supported, another
	// owner has an object that it needs, another policy is active, or an admission policy is missing. The condition is
	// absent otherwise, also while nodes or operands fail. Its reason is that of Ready before Paused.
	ConditionStalled = "Stalled"
	// ConditionCRDOutdated: the CustomResourceDefinition in the cluster is older than the operator, so that the API server
	// drops fields of the spec. The condition is absent otherwise. Its reason is ReasonCRDOutdated.
	ConditionCRDOutdated = "CRDOutdated"
	// ConditionAdmissionPolicyMissing: the admission policies that limit what the operator and its operands may write are
	// not installed. The condition is absent otherwise. Its reason is ReasonAdmissionPolicyMissing, and Ready does not
	// depend on it.
	ConditionAdmissionPolicyMissing = "AdmissionPolicyMissing"
	// ConditionOtherOperatorRunning: NVIDIA's operator is at work in the cluster, so that this one changes nothing; the
	// other conditions stay as they are. The condition is absent otherwise. Its reason is ReasonOtherOperatorRunning.
	ConditionOtherOperatorRunning = "OtherOperatorRunning"
	// ConditionOutdatedComponent: a component, of the spec or on a node, has a version with known vulnerabilities, which a
	// newer one fixes. The condition is absent otherwise. Its reason is ReasonOutdatedComponent, and Ready does not depend
	// on it.
	ConditionOutdatedComponent = "OutdatedComponent"
)

// Reasons of the conditions of a ClusterPolicy. The doc comment of each reason states its meaning, then Cause and
// Remedy; docs/troubleshooting.md is generated from these comments.
const (
	// ReasonReconciled: the cluster is as the spec requests, and every GPU node is ready.
	// Cause: normal operation.
	// Remedy: none needed.
	ReasonReconciled = "Reconciled"
	// ReasonNoGPUNodes: no node has a GPU, so there is nothing to install; Ready is True.
	// Cause: node discovery has looked at the nodes and found no NVIDIA GPU, or the GPU nodes have not joined yet.
	// Remedy: none if the cluster has no GPU node yet. Otherwise check that the node has the label
	// feature.node.kubernetes.io/pci-10de.present=true, and the log of its nvidia-node-discovery pod.
	ReasonNoGPUNodes = "NoGPUNodes"
	// ReasonNodeDiscoveryMissing: no node has a discovery label, so that the operator cannot determine which nodes have
	// GPUs.
	// Cause: spec.nodeDiscovery.mode is nfd and Node Feature Discovery is not installed, or the operator's own node
	// discovery is off or does not run.
	// Remedy: install Node Feature Discovery, or set spec.nodeDiscovery.mode to auto; then check the pods of the DaemonSet
	// nvidia-node-discovery. The message names the remedy that applies.
	ReasonNodeDiscoveryMissing = "NodeDiscoveryMissing"
	// ReasonInvalidSpec: the spec contradicts itself or requests something impossible; running operands are left as they
	// are.
	// Cause: fields that exclude each other, or a value that the API server or the operand does not accept.
	// Remedy: correct the field that the message names.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonUndecodable: the operator cannot decode the object, which an older CustomResourceDefinition has admitted. It
	// changes nothing for it: what is installed stays, and other objects are not affected. Also a reason of an Event.
	// Cause: a number of more than 32 bits, a quantity with a large exponent, or a duration that is too long. Or a value
	// of another type than the field has.
	// Remedy: correct the fields that the message names, such as by kubectl edit; the operator continues at once. A
	// ClusterPolicy beside another one that is active stays ignored.
	ReasonUndecodable = "Undecodable"
	// ReasonNotSupportedYet: the spec or a node needs a feature that this version of the operator does not implement.
	// Cause: for example nodes for virtual machines, an unknown container runtime, or a runtime too old for NRI. In the
	// condition UnsupportedFields: a field that has no effect yet, or a variable of the operator for an image that is
	// ignored.
	// Remedy: remove the field or the variable, or change the node's label or runtime, as the message describes.
	ReasonNotSupportedYet = "NotSupportedYet"
	// ReasonConflict: an object that the operator needs to create already exists and belongs to another owner.
	// Cause: a second installation, such as NVIDIA's operator or a manually applied manifest, uses the same object name.
	// Remedy: delete the object that the message names, or uninstall its owner. See docs/migration.md for a take-over.
	ReasonConflict = "Conflict"
	// ReasonReconcileFailed: a call to the API server failed or was not answered; the operator retries with back-off.
	// Cause: missing permissions, an unavailable API server or webhook, or a Node that cannot be written.
	// Remedy: fix the error in the message. If it reports "forbidden", apply the RBAC manifests of this version.
	ReasonReconcileFailed = "ReconcileFailed"
	// ReasonAltered: an object of an operand came back from the API server different from what was applied.
	// Cause: an admission webhook or policy changes the object, or another controller writes the same field.
	// Remedy: exempt the object from the webhook or policy, stop the other writer, or set the same value in the spec. The
	// message names the field, and its manager if known.
	ReasonAltered = "Altered"
	// ReasonPlacementRepaired: another writer had changed which nodes a DaemonSet runs on, and the operator has restored
	// it. It is used in Events only.
	// Cause: a user or controller edited the DaemonSet's nodeSelector, affinity or tolerations.
	// Remedy: set the nodeSelector or tolerations in the spec instead of editing the DaemonSet.
	ReasonPlacementRepaired = "PlacementRepaired"
	// ReasonEditReverted: another writer had changed an object that the operator applies, and the operator has restored
	// it. It is used in Events only.
	// Cause: a user or controller edited the object, such as ConfigMap default-mig-parted-config.
	// Remedy: do what the message names, such as to set migManager.config.name to a ConfigMap of your own.
	ReasonEditReverted = "EditReverted"
	// ReasonAssessing: not all GPU nodes have been assessed against the current spec yet. It is a reason of Progressing,
	// and of Ready until the first assessment is complete.
	// Cause: the spec has just changed, or the operator has just started.
	// Remedy: wait; if the number of nodes in the message does not fall for minutes, check the operator's log.
	ReasonAssessing = "Assessing"
	// ReasonOperandFailed: an operand fails on at least one node.
	// Cause: a container crashes, its image cannot be pulled, its pod cannot be created, or a deadline has passed.
	// Remedy: read the failed nodes in status.nodes; their reason and message show the container and the error.
	ReasonOperandFailed = "OperandFailed"
	// ReasonOperandNotReady: an operand is not ready on all of its nodes yet, or a GPU node waits for something else.
	// Cause: pods are being created or started, for example while a node joins or a driver is compiled. The policy's
	// message has the reason of each node that it names.
	// Remedy: wait; the message names the nodes. Once the deadline in spec.deadlines has passed, the node is degraded.
	ReasonOperandNotReady = "OperandNotReady"
	// ReasonUpgradePending: pods of an operand are outdated and wait to be replaced; the GPUs of their nodes can be used.
	// Cause: the spec or the kernel of nodes changed, and a driver is replaced only when no pod uses the GPUs of its node.
	// Remedy: wait if autoUpgrade is true in spec.driver.upgradePolicy; status.nodes[].upgrade has what each upgrade waits
	// for. If it is false, annotate each node as the message describes. See docs/driver-upgrades.md.
	ReasonUpgradePending = "UpgradePending"
	// ReasonUpgradeFailed: the driver upgrade of at least one node has failed.
	// Cause: a deadline of spec.driver.upgradePolicy has passed, or the images of the driver cannot be pulled. Or the node
	// does not report, or another client has uncordoned it. The message names the first node and its cause.
	// Remedy: remove that cause. A node that has kept its driver is tried again later, or at once with the annotation
	// nvidia.com/gpu-driver-upgrade-requested=true; after an uncordon only with the annotation, or for another driver. A
	// node that stays cordoned recovers when its new driver is validated.
	ReasonUpgradeFailed = "UpgradeFailed"
	// ReasonPaused: spec.paused is true, so that the operator writes nothing but status and Events. Ready still shows the
	// real state.
	// Cause: spec.paused is set.
	// Remedy: remove spec.paused to continue.
	ReasonPaused = "Paused"
	// ReasonIgnored: this ClusterPolicy has no effect, because another one is active.
	// Cause: the cluster has more than one ClusterPolicy.
	// Remedy: merge both specs into the active one, which the message names, and delete the other.
	ReasonIgnored = "Ignored"
	// ReasonCRDOutdated: the CustomResourceDefinition in the cluster has not all fields of this version; also a reason of
	// an Event. The operator changes nothing while the policy may have lost such a field.
	// Cause: the operator was upgraded without its CRD, the chart was rolled back, or NVIDIA's CRD was applied over it.
	// Remedy: apply the CRD of this version with kubectl apply --server-side --force-conflicts. Apply the ClusterPolicy
	// again if a client has written it meanwhile.
	ReasonCRDOutdated = ConditionCRDOutdated
	// ReasonOtherOperatorRunning: NVIDIA's operator is at work in the cluster, so that this one changes nothing. It is
	// also a reason of an Event, and of Ready while no operator has set that yet. Cause: this operator was installed
	// before NVIDIA's was removed, or NVIDIA's was installed later. Remedy: remove NVIDIA's operator as docs/migration.md
	// describes, or scale its Deployment, which the message names, to 0. This operator then continues by itself. With the
	// flag --take-over it does not wait.
	ReasonOtherOperatorRunning = ConditionOtherOperatorRunning
	// ReasonOutdatedComponent: a component, of the spec or on a node, has a version with known vulnerabilities. It is also
	// a reason of an Event, and changes neither Ready nor what the operator does.
	// Cause: the spec or the host has an older version than the first one that fixes them. The message names the
	// component, its version, the minimum version, the first vulnerabilities or NVIDIA's bulletin, and up to three nodes
	// of a driver.
	// Remedy: set a newer version in the spec, or remove it for the default; a driver of the host is updated there. The
	// minimum versions are in docs/images.md.
	ReasonOutdatedComponent = ConditionOutdatedComponent
	// ReasonNone: the condition is False, and there is nothing to report.
	// Cause: normal operation.
	// Remedy: none needed.
	ReasonNone = "None"
)

// Reasons of an operand that is not Ready. An operand can also have InvalidSpec, NotSupportedYet, Conflict,
// ReconcileFailed, Altered, OperandFailed, OperandNotReady, UpgradePending, Paused and NotSelected.
const (
	// ReasonDisabledBySpec: the spec disables the operand.
	// Cause: enabled is false in the operand's block, or another field makes the operand unnecessary.
	// Remedy: none if intended; otherwise change the field that the message names.
	ReasonDisabledBySpec = "DisabledBySpec"
	// ReasonNotNeeded: no node needs the operand.
	// Cause: the hosts provide it already, labels exclude it on every node, or the cluster has no GPU node.
	// Remedy: none if intended; otherwise check the labels nvidia.com/gpu.deploy.* of the nodes.
	ReasonNotNeeded = "NotNeeded"
	// ReasonNotScheduled: fewer nodes run the operand than need it.
	// Cause: a taint, an unreachable node, or a pod that cannot be created.
	// Remedy: fix the cause that the message names for each node; for taints see spec.daemonsets.tolerations.
	ReasonNotScheduled = "NotScheduled"
	// ReasonWaitingForOperand: the operand waits for another one that must be ready first.
	// Cause: a required operand is not installed, not applied, or not ready on the node yet.
	// Remedy: wait, or fix the operand that the message names.
	ReasonWaitingForOperand = "WaitingForOperand"
	// ReasonReferenceMissing: an object that the spec refers to does not exist, or has no such key; running pods are left
	// as they are.
	// Cause: a ConfigMap, Secret or other object named in the spec was not created, or was deleted.
	// Remedy: create the object, or add the key; the message names the field, the object and the key.
	ReasonReferenceMissing = "ReferenceMissing"
	// ReasonAdmissionPolicyMissing: the admission policies that limit what the operator and its operands may write are not
	// installed, so node discovery stays off; also a reason of the condition of that name. Cause: the
	// ValidatingAdmissionPolicyBinding gpu-operator-node-agents, which is installed with all others, does not exist. A
	// bundle of the Operator Lifecycle Manager cannot contain them. Remedy: run the command in the message of the
	// condition AdmissionPolicyMissing. Without the policies, install Node Feature Discovery.
	ReasonAdmissionPolicyMissing = ConditionAdmissionPolicyMissing
	// ReasonNotTakenOver: the driver or the toolkit of NVIDIA's operator still runs as it is, and is not updated.
	// Cause: a node that runs it has no discovery labels, so it is unknown which driver or toolkit it needs. Or its driver
	// pool has no DaemonSet, because its driver cannot be installed as specified. For some seconds, DaemonSets are also
	// being deleted without their pods.
	// Remedy: restore the discovery labels of the node that the message names, or see the reason that the status has for
	// this node.
	ReasonNotTakenOver = "NotTakenOver"
	// ReasonRollingOut: the DaemonSet controller has not processed the operand's latest change yet.
	// Cause: the operand's objects were created or changed a moment ago.
	// Remedy: wait; if it lasts, check that kube-controller-manager runs.
	ReasonRollingOut = "RollingOut"
)

// Reasons of a node that is not ready, in status.nodes and in the Node condition nvidia.com/GPUReady. A node can also
// have UpgradePending, NotSupportedYet, InvalidSpec, ReferenceMissing and WaitingForOperand.
const (
	// ReasonGPUReady: the GPUs of the node can be used. It is used in the Node condition and in Events only.
	// Cause: normal operation.
	// Remedy: none needed.
	ReasonGPUReady = "GPUReady"
	// ReasonDiscoveryLabelsMissing: discovery labels that the node had are missing. Its operands stay for the grace
	// period, and a node that was ready stays ready.
	// Cause: node discovery or Node Feature Discovery was removed or fails, or a user removed the labels.
	// Remedy: restore node discovery, or the label that the message names. The message says when operands are removed. A
	// node without any discovery label keeps them. So does one whose labels show no GPU, while its kubelet advertises one
	// or a pod uses one.
	ReasonDiscoveryLabelsMissing = "DiscoveryLabelsMissing"
	// ReasonStartupTaint: the GPUs of the node can be used, but a start-up taint still keeps pods off the node.
	// Cause: the admission policy gpu-operator-operator does not allow the operator to remove this taint.
	// Remedy: add the key to nodeStartup.taints of the chart, or to ownTaints of that admission policy.
	ReasonStartupTaint = "StartupTaint"
	// ReasonGPUPodsRefused: the GPUs of the node can be used, but its kubelet refused pods that had some when it booted.
	// Cause: after a boot the kubelet starts its pods before the device plugin has registered, whatever the taints of the
	// node. Such pods stay Failed with the reason UnexpectedAdmissionError.
	// Remedy: delete the pods that the message names, and create those again that no controller owns. With
	// spec.nodeStartup.cleanFailedPods the operator deletes those that a controller owns, except in kube-system. Drain
	// nodes before they boot.
	ReasonGPUPodsRefused = "GPUPodsRefused"
	// ReasonForeignDevicePlugin: the node has offered GPUs for 2 minutes although the operator's device plugin has not
	// started there: another device plugin advertises them, and nothing has validated them.
	// Cause: a DaemonSet of the device plugin from another source, such as a manifest, a chart or the cloud provider.
	// Remedy: remove it: kubectl get daemonsets -A -o wide | grep device-plugin. If it is to stay, set
	// spec.devicePlugin.enabled to false, or label the node nvidia.com/gpu.deploy.device-plugin=false.
	ReasonForeignDevicePlugin = "ForeignDevicePlugin"
	// ReasonDuplicateDevicePlugin: the GPUs of the node can be used, but another device plugin runs there beside the
	// operator's. The kubelet uses the one that registered last, so that sharing, MIG devices and the health of GPUs may
	// not be as the spec requests. When either ends, the kubelet may take all GPUs of the node as unhealthy.
	// Cause: a DaemonSet of the device plugin from a manifest, a chart such as HAMi's, or the cloud provider.
	// Remedy: remove the one that the message names, in the way in which it was installed: helm uninstall, kubectl delete,
	// or the switch of the cloud provider. Then delete the pod of the operator's device plugin on the node, so that it
	// registers again. If the other one is to stay, set spec.devicePlugin.enabled to false, or label the node
	// nvidia.com/gpu.deploy.device-plugin=false.
	ReasonDuplicateDevicePlugin = "DuplicateDevicePlugin"
	// ReasonDuplicateOperand: the GPUs of the node can be used, but another program does there what an operand of the
	// operator does. It is GPU Feature Discovery, a DCGM exporter or a DCGM host engine. Cause: a manifest, a chart or the
	// cloud provider has installed it. Two GPU Feature Discoveries overwrite each other's labels if they are configured
	// differently. Two exporters count each GPU twice, and only one of them gets the profiling metrics (DCGM_FI_PROF_*).
	// Remedy: remove the one that the message names, or set the field that it names to false. To do so on single nodes,
	// label them nvidia.com/gpu.deploy.OPERAND=false.
	ReasonDuplicateOperand = "DuplicateOperand"
	// ReasonGPUsOfferedTwice: the GPUs of the node can be used, but a device plugin and a DRA driver both offer them.
	// The scheduler counts the two apart, so that a pod that requests nvidia.com/gpu and one with a claim may get the
	// same GPU.
	// Cause: a DRA driver for GPUs was installed while the device plugin is on.
	// Remedy: turn off one of them. For the GPUs of the DRA driver set resources.gpus.enabled=false in the values of
	// NVIDIA's chart, which keeps ComputeDomains. For the device plugin set spec.devicePlugin.enabled to false, or label
	// the node nvidia.com/gpu.deploy.device-plugin=false.
	ReasonGPUsOfferedTwice = "GPUsOfferedTwice"
	// ReasonFactsMissing: a fact about the node that the driver image or the toolkit is chosen by is missing.
	// Cause: the node has no discovery labels for its operating system or kernel, or the kubelet has not reported the
	// container runtime yet.
	// Remedy: check that node discovery labels the node: feature.node.kubernetes.io/system-os_release.* and
	// feature.node.kubernetes.io/kernel-version.full.
	ReasonFactsMissing = "FactsMissing"
	// ReasonDriverToolkitMissing: OpenShift provides no driver toolkit image for the node's release of Red Hat CoreOS.
	// Cause: the ImageStream driver-toolkit in namespace openshift is missing or cannot be read, or has no tag with a
	// usable image for the release.
	// Remedy: add the tag, or set spec.operator.use_ocp_driver_toolkit to false on entitled hosts, or use
	// spec.driver.usePrecompiled.
	ReasonDriverToolkitMissing = "DriverToolkitMissing"
	// ReasonExcluded: the node is excluded from the operator; on a policy, all GPU nodes are, and Ready is True.
	// Cause: the node has the label nvidia.com/gpu.deploy.operands=false; on a policy also a nodeSelector of the spec that
	// selects no GPU node.
	// Remedy: none if intended; otherwise remove the label, or change the nodeSelector.
	ReasonExcluded = "Excluded"
	// ReasonNotSelected: a nodeSelector of the spec excludes the node from one operand or from all of them.
	// Cause: the node does not have the labels of spec.daemonsets.nodeSelector, of the operand's nodeSelector, or of the
	// node pool.
	// Remedy: none if intended; otherwise label the node, or change the nodeSelector.
	ReasonNotSelected = "NotSelected"
	// ReasonNoNVIDIADriver: no NVIDIADriver object selects the node, which gets no driver; it keeps the one that it has.
	// Cause: spec.driver.useNvidiaDriverCRD is true, and the node does not have the labels of any nodeSelector.
	// Remedy: change a nodeSelector, label the node, or create an NVIDIADriver with default: true.
	ReasonNoNVIDIADriver = "NoNVIDIADriver"
	// ReasonConflictingNodeSelector: several NVIDIADriver objects select the node, which keeps the driver that it has.
	// Cause: two nodeSelectors match the labels of the node, or two objects are the default.
	// Remedy: change one of the nodeSelectors so that one object selects the node.
	ReasonConflictingNodeSelector = "ConflictingNodeSelector"
	// ReasonOperandPaused: an operand is paused on the node; no deadline applies.
	// Cause: a label nvidia.com/gpu.deploy.OPERAND of the node has another value than true and pre-installed, for example
	// during a driver upgrade or a MIG reconfiguration. With false, a user keeps the operand off.
	// Remedy: wait for the component that paused it, or set the label to true.
	ReasonOperandPaused = "OperandPaused"
	// ReasonUpgrading: the driver of the node is being upgraded, so that its GPUs cannot be used; the message has the
	// state of the upgrade. No deadline of spec.deadlines applies.
	// Cause: normal operation.
	// Remedy: wait; the deadlines are those of spec.driver.upgradePolicy.
	ReasonUpgrading = "Upgrading"
	// ReasonPodMissing: the node has no pod of an operand that it needs.
	// Cause: the pod has not been created yet, or another operand must be ready first.
	// Remedy: wait; if it lasts, read the Events of the DaemonSet that the message names.
	ReasonPodMissing = "PodMissing"
	// ReasonPodPending: a pod of an operand is not scheduled yet.
	// Cause: the scheduler has not processed the pod yet.
	// Remedy: wait; if it lasts, read the pod's Events.
	ReasonPodPending = "PodPending"
	// ReasonStarting: a pod of an operand is starting.
	// Cause: its image is being pulled, a container is not ready yet, or the pod is being replaced.
	// Remedy: wait; if it lasts, read the log of the container that the message names.
	ReasonStarting = "Starting"
	// ReasonContainerFailed: a pod of an operand has failed as a whole.
	// Cause: the kubelet evicted or rejected the pod, for example under memory or disk pressure.
	// Remedy: fix the cause in the message; the DaemonSet controller then creates a new pod.
	ReasonContainerFailed = "ContainerFailed"
	// ReasonNotAllocatable: the kubelet advertises no GPU that can be allocated.
	// Cause: the device plugin has not registered yet, found no GPU, or reports all GPUs as unhealthy.
	// Remedy: read the device plugin's log on the node, and the kernel log for Xid errors.
	ReasonNotAllocatable = "NotAllocatable"
	// ReasonDevicePluginOff: nothing offers the GPUs of the node, as it has no device plugin of the operator.
	// Cause: the field or the label that the message names keeps the device plugin off the node.
	// Remedy: change the field or the label, or install another device plugin.
	ReasonDevicePluginOff = "DevicePluginOff"
	// ReasonNodeNotReady: the node itself is not ready.
	// Cause: the kubelet reports a problem, such as a missing network plugin, or has not reported yet.
	// Remedy: fix the condition Ready of the Node; see kubectl describe node.
	ReasonNodeNotReady = "NodeNotReady"
)
