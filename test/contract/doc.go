// Package contract checks the rendered objects of the operands against what NVIDIA's images, their users and related
// projects rely on: tables that are written from facts about these programs and never from our manifests.
//
// The field source of a row states where its fact comes from. "operands N" is about NVIDIA's programs:
//
//	0        what NVIDIA/gpu-operator does to all operands (controllers, internal/policy/image)
//	1.1-1.10 its manifests: assets/state-driver, -container-toolkit, -device-plugin, -mps-control-daemon,
//	         gpu-feature-discovery, -dcgm, -dcgm-exporter, -mig-manager, -operator-validation,
//	         -node-status-exporter, in this order
//	2        its validator (cmd/nvidia-validator)
//	3        NVIDIA/k8s-device-plugin: configuration, config-manager, labels
//	4        NVIDIA/mig-parted: layouts and nvidia-mig-manager
//	5        NVIDIA/dcgm-exporter
//	6        NVIDIA/nvidia-container-toolkit: runtimes, CDI, NRI
//	7        NVIDIA/gpu-driver-container and NVIDIA/k8s-driver-manager
//	8, 9     Node Feature Discovery, and how NVIDIA's operator is installed
//	10       what happens on a node, in which order
//
// "api N" is about the API and the controllers of NVIDIA/gpu-operator, "peers 5" about what other projects read of
// the operands, and "DESIGN" about decisions of this project, see docs/architecture. "reversed" marks a bug of the
// original that is not copied.
package contract
