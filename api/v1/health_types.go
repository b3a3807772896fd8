package v1

import "k8s.io/apimachinery/pkg/util/intstr"

// HealthSpec configures which losses of GPUs a node may have and still be ready.
type HealthSpec struct {
	// MinUsable is how many GPUs of a node must be usable: a number, or a percentage from 0% to 100%. Default 100%.
	//
	// A node with fewer usable GPUs is not ready, but keeps its operands, and neither driver upgrades nor start-up taints
	// wait for it. A node that has fewer GPUs than the number needs all of them. Percentages are rounded up. The status
	// reports each loss, whatever this value.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="type(self) == int || self.matches('^([0-9]{1,9}|([0-9]{1,2}|100)%)?$')",message="must be a number of at most 9 digits, or a percentage of 0% to 100%"
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0",message="must not be negative"
	MinUsable *intstr.IntOrString `json:"minUsable,omitempty"`
	// Agent configures the health agent, which reports the faults of GPUs that the kernel log of each node has.
	// +optional
	Agent *HealthAgentSpec `json:"agent,omitempty"`
	// Actions configures what is done with nodes whose GPUs the health agent reports as unhealthy. Default nothing.
	// +optional
	Actions *HealthActionsSpec `json:"actions,omitempty"`
}

// HealthAction is what is done with a node that has an unhealthy GPU.
// +kubebuilder:validation:Enum="";none;taint;cordon
type HealthAction string

// The values of the actions. Neither evicts a pod.
const (
	// HealthActionNone only reports the fault.
	HealthActionNone HealthAction = "none"
	// HealthActionTaint sets the taint nvidia.com/gpu-operator.unhealthy with the effect NoSchedule.
	HealthActionTaint HealthAction = "taint"
	// HealthActionCordon makes the node unschedulable.
	HealthActionCordon HealthAction = "cordon"
)

// HealthActionsSpec is what is done with nodes that have an unhealthy GPU, by the class of the fault: none, taint or
// cordon. It needs the health agent. No pod is evicted, and what was done is undone once the fault has ended.
type HealthActionsSpec struct {
	// All is the action for the classes that have none of their own. Default none.
	// +optional
	All HealthAction `json:"all,omitempty"`
	// Reset is the action for a GPU that must be reset. Default that of all.
	// +optional
	Reset HealthAction `json:"reset,omitempty"`
	// Reboot is the action for a node that must be rebooted. Default that of all.
	// +optional
	Reboot HealthAction `json:"reboot,omitempty"`
	// Hardware is the action for a GPU that needs a person. Default that of all.
	// +optional
	Hardware HealthAction `json:"hardware,omitempty"`
	// MaxNodes is how many nodes may be tainted or cordoned at a time: a number, or a percentage of the GPU nodes, rounded
	// up. Default 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0",message="must not be negative"
	// +kubebuilder:validation:Pattern=`^([0-9]{1,9}|([0-9]{1,2}|100)%)?$`
	MaxNodes *intstr.IntOrString `json:"maxNodes,omitempty"`
	// Dwell is how long a fault must last before the action, such as 10m. Default 10m, and 0s for the taint of a node that
	// has lost a GPU.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,6}(h|m|s)){0,3}$`
	Dwell string `json:"dwell,omitempty"`
}

// HealthAgentSpec configures the health agent. Its image and pull policy are those of the validator.
type HealthAgentSpec struct {
	// Enabled installs the health agent, which serves metrics on port 8001. Default false.
	//
	// It reads the kernel log, for which it needs a privileged container, and holds no GPU.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Resources of each container. Default none.
	// +optional
	Resources     *ResourceRequirements `json:"resources,omitempty"`
	PlacementSpec `json:",inline"`
}

// NodeGPUs counts the GPUs of a node, or of all nodes.
type NodeGPUs struct {
	// Total is how many GPUs there are.
	Total int32 `json:"total"`
	// Usable is how many of them the kubelet can give to pods; 0 on a node that has not reached the stage Allocatable.
	Usable int32 `json:"usable"`
}

// Reasons of a node that has lost GPUs. Such a node is ready if it has as many usable GPUs as spec.health.minUsable
// requires.
const (
	// ReasonGPUsUnhealthy: the node advertises more GPUs than the kubelet can give to pods.
	// Cause: the device plugin has found some of them unhealthy, for example after an Xid error, or the health agent
	// reports one as lost. The device plugin does not notice that one has recovered.
	// Remedy: read the log of the node's nvidia-device-plugin-daemonset pod and the kernel log of the node. Reset the GPU
	// or reboot the node, then restart that pod.
	ReasonGPUsUnhealthy = "GPUsUnhealthy"
	// ReasonGPUsMissing: the driver does not see all GPUs that it is bound to on the PCI bus, or not all that were
	// validated. Cause: a GPU has fallen off the bus (Xid 79), the driver could not initialize it, or it was unbound from
	// the driver. Remedy: read the kernel log of the node and reboot it; if the GPU stays away, it or its power or riser
	// is defective.
	ReasonGPUsMissing = "GPUsMissing"
)

// ReasonPluginConfigInvalid: a configuration of the device plugin, or a part of it, cannot be used; pods that run are
// left as they are.
// Cause: its ConfigMap, or the label nvidia.com/device-plugin.config of the node, as the message describes, with the
// line. Remedy: correct the ConfigMap or the label, or use spec.sharing, which has no such traps.
const ReasonPluginConfigInvalid = "PluginConfigInvalid"

// ReasonMIGLayoutsInvalid: the MIG manager cannot read the layouts of a ConfigMap; its pods that run are left as they
// are.
// Cause: the key config.yaml of the ConfigMap in spec.migManager.config.name is no YAML, or has no mig-configs.
// Remedy: mend the part that the message names. The format is that of mig-parted.
const ReasonMIGLayoutsInvalid = "MIGLayoutsInvalid"

// Reasons of a node whose MIG layout, the label nvidia.com/mig.config, is not what its GPUs have.
const (
	// ReasonMIGConfigPending: the MIG manager changes the MIG layout of the node, and meanwhile pauses the device plugin,
	// GPU Feature Discovery, DCGM and its exporter.
	// Cause: the label nvidia.com/mig.config has changed, or the node has booted. The message says if the label or the MIG
	// manager is gone meanwhile.
	// Remedy: wait. If the deadline has passed (spec.deadlines.devicePlugin), the operands of the node are started again;
	// read the log of its nvidia-mig-manager pod.
	ReasonMIGConfigPending = "MIGConfigPending"
	// ReasonMIGConfigFailed: the MIG manager could not apply the MIG layout of the node, or cannot: its ConfigMap does not
	// have the layout, or the GPUs do not support it.
	// Cause: the layout is unknown or does not fit the GPUs, or pods use GPUs whose MIG mode has to change.
	// Remedy: the message has the words of the MIG manager, or the command that shows its log. End the pods that use GPUs,
	// or set the label nvidia.com/mig.config to another layout of the ConfigMap; setting it to all-disabled and back tries
	// again.
	ReasonMIGConfigFailed = "MIGConfigFailed"
	// ReasonMIGConfigMismatch: the MIG manager has applied the MIG layout, but the node does not advertise its devices.
	// Cause: spec.mig.strategy is none or single where pods are to request resources such as nvidia.com/mig-1g.10gb,
	// which only mixed advertises; or the device plugin has not noticed the change.
	// Remedy: set spec.mig.strategy as the message describes, or restart the node's nvidia-device-plugin-daemonset pod.
	ReasonMIGConfigMismatch = "MIGConfigMismatch"
	// ReasonMIGConfigHeld: the node works, and the MIG layout that the spec wants for it is not requested yet.
	// Cause: pods use its GPUs, its GPUs cannot have the layout, or as many other nodes are unavailable as
	// spec.driver.upgradePolicy allows. With onBusy: drain it can also be that the pods could not be evicted in time, or
	// that someone has uncordoned the node.
	// Remedy: wait, end the pods that the message names, or set spec.migManager.config.onBusy to drain or now. For another
	// layout, set spec.migManager.config.default or that of a node pool. A label nvidia.com/mig.config that you set is
	// applied at once.
	ReasonMIGConfigHeld = "MIGConfigHeld"
	// ReasonMIGConfigDraining: the node is cordoned, and the pods that use its GPUs are evicted, as its MIG layout is to
	// change.
	// Cause: spec.migManager.config.onBusy is drain.
	// Remedy: wait. If the message names a PodDisruptionBudget (PDB) or a pod that blocks it, see UpgradeBlocked: the same
	// rules and timeouts apply, and the node is uncordoned after them. To stop it, uncordon the node or set onBusy to
	// hold.
	ReasonMIGConfigDraining = "MIGConfigDraining"
)

// Reasons of the condition nvidia.com/GPUHealthy, which nodes with a health agent have (spec.health.agent).
const (
	// ReasonGPUsHealthy: no GPU of the node needs a reset, a reboot or a person.
	// Cause: neither the kernel log of this boot nor NVML has such an error, or the GPU has recovered.
	// Remedy: none.
	ReasonGPUsHealthy = "GPUsHealthy"
	// ReasonGPUHealthUnknown: the health agent has not reported since the boot of the node.
	// Cause: its pod has not started yet, or its report is malformed.
	// Remedy: read the log of the node's nvidia-gpu-health pod.
	ReasonGPUHealthUnknown = "GPUHealthUnknown"
	// ReasonGPULost: a GPU has fallen off the bus, so that no pod can use it.
	// Cause: Xid 79, or neither NVML nor the PCI bus reach it: the GPU, its power, its riser or the slot.
	// Remedy: reboot the node. If it occurs again within 30 days, have the hardware examined.
	ReasonGPULost = "GPULost"
	// ReasonGPUResetRequired: a GPU must be reset before it can be used.
	// Cause: an error that stops the GPU, such as Xid 46, 62, 109, 110, 143 or 158, or the driver has announced it by Xid
	// 154 or in NVML.
	// Remedy: end the pods that use the GPU and reset it, or reboot the node.
	ReasonGPUResetRequired = "GPUResetRequired"
	// ReasonGPUDrainPeersRequired: a GPU must be reset after all programs have ended that reach it from other GPUs.
	// Cause: the driver has announced it by Xid 154 or in NVML.
	// Remedy: end the pods that use several GPUs, then reset the GPU, or reboot the node.
	ReasonGPUDrainPeersRequired = "GPUDrainPeersRequired"
	// ReasonNodeRebootRequired: a reset of the GPU does not suffice.
	// Cause: the driver has announced it by Xid 154 or in NVML.
	// Remedy: drain and reboot the node.
	ReasonNodeRebootRequired = "NodeRebootRequired"
	// ReasonGPUUncorrectableECC: the memory of a GPU has an error that could not be corrected.
	// Cause: Xid 48, 171 or 172.
	// Remedy: end the pods that use the GPU and reset it. If it occurs again, run the field diagnostic.
	ReasonGPUUncorrectableECC = "GPUUncorrectableECC"
	// ReasonGPUMemoryErrorUncontained: an error of the memory may have reached all programs on the GPU.
	// Cause: Xid 95 or 140.
	// Remedy: end the pods that use the GPU and reset it.
	ReasonGPUMemoryErrorUncontained = "GPUMemoryErrorUncontained"
	// ReasonGPUMemoryRemapFailed: a row of the memory could not be replaced.
	// Cause: Xid 64, or NVML shows it, as with too few spare rows.
	// Remedy: reset the GPU. If the fault stays (class Hardware), run the field diagnostic and replace the GPU.
	ReasonGPUMemoryRemapFailed = "GPUMemoryRemapFailed"
	// ReasonGPUMemoryDegrading: the memory of a GPU, or another part that wears out, has had many errors.
	// Cause: Xid 92, 93, 157, 160, 161 or 165, three times in a day.
	// Remedy: plan to replace the GPU, and ask its vendor.
	ReasonGPUMemoryDegrading = "GPUMemoryDegrading"
	// ReasonGPUResourceRetired: the driver has retired a part of the GPU.
	// Cause: Xid 156.
	// Remedy: reset the GPU when no pod uses it.
	ReasonGPUResourceRetired = "GPUResourceRetired"
	// ReasonGPUFirmwareTimeout: the firmware of a GPU does not answer the driver.
	// Cause: Xid 119 or 120.
	// Remedy: reset the GPU, or reboot the node if that fails. If it occurs again, update the driver.
	ReasonGPUFirmwareTimeout = "GPUFirmwareTimeout"
	// ReasonNVLinkError: a link between GPUs has failed.
	// Cause: Xid 74, 136, 149 or 155: the GPU, the GPU at the other end, a bridge or a switch.
	// Remedy: end the pods that use the GPUs and reset them. If it occurs again, have the hardware examined.
	ReasonNVLinkError = "NVLinkError"
	// ReasonNVSwitchFatalError: an NVSwitch has a fatal error, which may concern all GPUs of the node.
	// Cause: an SXid that the driver calls fatal.
	// Remedy: read the log of the fabric manager. Reset all GPUs of the node together, or reboot it.
	ReasonNVSwitchFatalError = "NVSwitchFatalError"
	// ReasonGPUPowerCableMissing: a GPU has no auxiliary power.
	// Cause: Xid 54: a cable is missing or loose, or a power supply has failed.
	// Remedy: have the hardware examined.
	ReasonGPUPowerCableMissing = "GPUPowerCableMissing"
	// ReasonGPUInfoROMCorrupted: the memory with the settings of a GPU is corrupted.
	// Cause: NVML reports it.
	// Remedy: have the GPU serviced.
	ReasonGPUInfoROMCorrupted = "GPUInfoROMCorrupted"
	// ReasonGPUHardwareError: a GPU reports an error of its hardware.
	// Cause: Xid 142 or 167.
	// Remedy: have the hardware examined; reboot the node once for Xid 167.
	ReasonGPUHardwareError = "GPUHardwareError"
)

// Reasons of Events about nodes with a health agent. No GPU is unhealthy because of them.
const (
	// ReasonGPUApplicationError: a program has made a mistake on a GPU, which is healthy.
	// Cause: an Xid of class App, such as 13 or 31.
	// Remedy: read the kernel log of the node for the process, and correct the program.
	ReasonGPUApplicationError = "GPUApplicationError"
	// ReasonGPUApplicationErrors: several programs have made mistakes on the same GPU.
	// Cause: Xids of class App of three processes in a day: the same mistake, or the GPU.
	// Remedy: run a diagnostic of the GPU.
	ReasonGPUApplicationErrors = "GPUApplicationErrors"
	// ReasonGPUChannelsTornDown: programs on a GPU were ended, and no other error explains it.
	// Cause: Xid 45 without another Xid of the GPU in the minute before or after it.
	// Remedy: on nodes with NVSwitches read the log of the fabric manager; otherwise none if a person ended the programs.
	ReasonGPUChannelsTornDown = "GPUChannelsTornDown"
	// ReasonGPUMemoryRemapPending: the next reset of a GPU replaces a row of its memory.
	// Cause: Xid 63, or NVML shows it: the row has had errors.
	// Remedy: reset the GPU when no pod uses it, or wait for the next boot. Work on the GPU goes on until then.
	ReasonGPUMemoryRemapPending = "GPUMemoryRemapPending"
	// ReasonGPUMemoryErrorContained: an error of the memory has ended a program, and has reached no other.
	// Cause: Xid 94.
	// Remedy: start the program again; reset the GPU when no pod uses it.
	ReasonGPUMemoryErrorContained = "GPUMemoryErrorContained"
	// ReasonGPUReducedCapability: a GPU has less memory, or does without power smoothing.
	// Cause: Xid 163 or 168.
	// Remedy: reset the GPU or reboot the node at the next maintenance.
	ReasonGPUReducedCapability = "GPUReducedCapability"
	// ReasonGPUPlatformError: the platform of the node has failed, and no GPU is known to be faulty.
	// Cause: Xid 78, 151, 159, 166, 169 or 170.
	// Remedy: read the kernel log of the node; a virtual machine may need a restart.
	ReasonGPUPlatformError = "GPUPlatformError"
	// ReasonGPUCountMismatch: NVML does not know a GPU that the driver is bound to.
	// Cause: the driver could not initialize it, or a person has drained it with nvidia-smi.
	// Remedy: read the kernel log of the node, and reboot it if the GPU is to be used.
	ReasonGPUCountMismatch = "GPUCountMismatch"
	// ReasonPCIeLinkDegraded: the PCIe link of a GPU has had fewer lanes than it can have for ten minutes.
	// Cause: the GPU sits badly in its slot, or the riser, the slot or the GPU has failed.
	// Remedy: have the hardware examined; pods on the GPU are slower.
	ReasonPCIeLinkDegraded = "PCIeLinkDegraded"
	// ReasonGPUThrottled: heat or the power supply has slowed a GPU for more than 20 % of ten minutes.
	// Cause: cooling, or the power supply of the node.
	// Remedy: have the cooling and the power supply examined.
	ReasonGPUThrottled = "GPUThrottled"
	// ReasonFabricDomainRecoveryRequired: the domain of a GPU's fabric must be recovered.
	// Cause: the driver announces it in NVML (recovery action 5).
	// Remedy: have the IMEX domain recovered.
	ReasonFabricDomainRecoveryRequired = "FabricDomainRecoveryRequired"
	// ReasonDriverNotLoaded: NVML finds no driver, although the driver of the node is validated.
	// Cause: the kernel module was unloaded.
	// Remedy: restart the driver's pod, or load the module.
	ReasonDriverNotLoaded = "DriverNotLoaded"
	// ReasonDriverLibraryMismatch: the driver's library and its kernel module differ in version.
	// Cause: a driver on the host was updated while it was in use.
	// Remedy: reboot the node.
	ReasonDriverLibraryMismatch = "DriverLibraryMismatch"
	// ReasonNVMLNotFound: the driver's library cannot be loaded.
	// Cause: the driver is installed without libnvidia-ml.so.1.
	// Remedy: read the log of the node's nvidia-gpu-health pod, and install the driver's libraries.
	ReasonNVMLNotFound = "NVMLNotFound"
	// ReasonNVMLAccessLost: the health agent cannot open the GPUs.
	// Cause: the device nodes of the GPUs are not there, or a reload of systemd has taken them from the container.
	// Remedy: delete the node's nvidia-gpu-health pod.
	ReasonNVMLAccessLost = "NVMLAccessLost"
	// ReasonNVMLHangs: NVML does not answer within its time.
	// Cause: the driver hangs, mostly because of a GPU.
	// Remedy: read the kernel log of the node, and reboot it if programs that use GPUs hang, too.
	ReasonNVMLHangs = "NVMLHangs"
	// ReasonNVMLFails: no session with NVML has shown anything, three times in succession.
	// Cause: the program that has the sessions ends with an error or crashes in the driver's library, or the library
	// returns an error that says nothing of the GPUs.
	// Remedy: read the log of the node's nvidia-gpu-health pod, which has the error. Until then only the kernel log shows
	// faults of the GPUs.
	ReasonNVMLFails = "NVMLFails"
)
