package fieldnotes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/effective"
)

// variable is a variable of the environment that cannot work as it is written, whatever the cluster has.
type variable struct {
	// name of the variable, in the lists whose field has one of the prefixes.
	name, lists string
	// isLost reports whether this value has no effect, or not the one that its author intends; nil for any value.
	isLost func(spec v1.ClusterPolicySpec, value string) bool
	// advice is what to do instead.
	advice string
}

// metricsFile is where the file of spec.dcgmExporter.config is in the exporter's container.
const metricsFile = "/etc/dcgm-exporter/dcgm-metrics.csv"

// validatorLists are the lists of all containers that run a check of the validator.
const validatorLists = "spec.validator."

const (
	installDir  = "is not read: set spec.hostPaths.driverInstallDir"
	layoutsFile = "names a file that is not mounted: set spec.migManager.config.name"

	once    = "is not read: each check belongs to its own container, and is repeated until it succeeds"
	testPod = "is not read: set the image, and its pull policy and secrets, of spec.validator"
)

// variables are those of the images' documentation and of NVIDIA's validator.
func variables() []variable {
	return []variable{
		{"DCGM_EXPORTER_COLLECTORS", "spec.dcgmExporter.", func(s v1.ClusterPolicySpec, value string) bool {
			return effective.Of(s).DCGMExporter.Config.Name != "" && value != metricsFile
		}, "names another file than spec.dcgmExporter.config, whose file then has no effect: remove one of them"},
		{"DEVICE_LIST_STRATEGY", "spec.devicePlugin.", func(s v1.ClusterPolicySpec, value string) bool {
			return slices.Contains(strings.Split(value, ","), "volume-mounts") &&
				!isTrue(s.Toolkit, "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS")
		}, "has volume-mounts, which the toolkit does not accept: add ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS=true " +
			"to spec.toolkit.env"},
		{"CONTAINERD_RUNTIME_CLASS", "spec.toolkit.", func(s v1.ClusterPolicySpec, value string) bool {
			return value != effective.Of(s).Operator.RuntimeClass
		}, "has no effect: set spec.operator.runtimeClass"},
		{"DCGM_HPC_JOB_MAPPING_DIR", "spec.dcgmExporter.", func(s v1.ClusterPolicySpec, value string) bool {
			jobs := effective.Of(s).DCGMExporter.HPCJobMapping
			return !*jobs.Enabled || jobs.Directory != value
		}, "names a directory that is not mounted: set spec.dcgmExporter.hpcJobMapping"},
		{"CONFIG_FILE", "spec.migManager.", nil, layoutsFile},
		{"DEFAULT_CONFIG_FILE", "spec.migManager.", nil, layoutsFile},
		{"GPU_CLIENTS_FILE", "spec.migManager.", nil,
			"names a file that is not mounted: set spec.migManager.gpuClientsConfig.name"},
		{"DRIVER_ROOT", validatorLists, nil, installDir},
		{"DRIVER_INSTALL_DIR", validatorLists, nil, installDir},
		{"DRIVER_INSTALL_DIR_CTR_PATH", validatorLists, nil, installDir},
		{"HOST_ROOT", validatorLists, nil, "is not read: set spec.hostPaths.rootFS"},
		{"COMPONENT", validatorLists, nil, once},
		{"WITH_WAIT", validatorLists, nil, once},
		{"CLEANUP_ALL", validatorLists, nil, "is not read: what an earlier driver has left is recognised as stale"},
		{"SLEEP_INTERVAL_SECONDS", validatorLists, nil, "is not read: set FAIL_AFTER to how long a check may fail"},
		{"OUTPUT_DIR", validatorLists, nil, "is not read: /run/nvidia/validations cannot be changed"},
		{"KUBECONFIG", validatorLists, nil, "is not read: the pod has a service account"},
		{"OPERATOR_NAMESPACE", validatorLists, nil, "is not read: the pod knows its namespace"},
		{"DEFAULT_GPU_WORKLOAD_CONFIG", validatorLists, nil, "is not read: set spec.sandboxWorkloads.defaultWorkload"},
		{"VALIDATOR_IMAGE", validatorLists, nil, testPod},
		{"VALIDATOR_IMAGE_PULL_POLICY", validatorLists, nil, testPod},
		{"VALIDATOR_IMAGE_PULL_SECRETS", validatorLists, nil, testPod},
		{"VALIDATOR_RUNTIME_CLASS", validatorLists, nil, "is not read: set spec.operator.runtimeClass"},
	}
}

// isTrue reports whether the toolkit's environment sets a variable to true.
func isTrue(toolkit *v1.ToolkitSpec, name string) bool {
	value := ""
	for _, variable := range deref(toolkit).Env {
		if string(variable.Name) == name {
			value = variable.Value
		}
	}
	isSet, err := strconv.ParseBool(value)
	return err == nil && isSet
}

// lostVariables returns a sentence for each variable of the spec that cannot work as it is written.
func lostVariables(spec v1.ClusterPolicySpec) []string {
	var found []string
	known := variables()
	effective.ForEachEnv(&spec, func(list string, env *[]v1.EnvVar) {
		for _, set := range *env {
			i := slices.IndexFunc(known, func(v variable) bool {
				return v.name == string(set.Name) && strings.HasPrefix(list, v.lists)
			})
			if i >= 0 && (known[i].isLost == nil || known[i].isLost(spec, set.Value)) {
				found = append(found, fmt.Sprintf("%s: %s %s", list, set.Name, known[i].advice))
			}
		}
	})
	return found
}
