package fieldnotes

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// variable is a variable of the environment that cannot work as it is written, whatever the cluster has.
type variable struct {
	// name of the variable, in the lists whose field has one of the prefixes.
	name, lists string
	// isLost reports whether this value has no effect, or not the one that its author intends; nil for any value.
	isLost func(spec given, value string) bool
	// advice is what to do instead.
	advice string
}

// metricsFile is where the file of spec.dcgmExporter.config is in the exporter's container.
const metricsFile = "/etc/dcgm-exporter/dcgm-metrics.csv"

// featuresFile is where GPU Feature Discovery writes the labels of the node.
const featuresFile = "/etc/kubernetes/node-feature-discovery/features.d/gfd"

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
	return slices.Concat(exporterVariables(), pluginVariables(), toolkitVariables(), managerVariables(),
		validatorVariables())
}

// unless returns whether a value is another one than that which works.
func unless(works string) func(given, string) bool {
	return func(_ given, value string) bool { return value != works }
}

// notRead returns whether a value is one that cannot be parsed; an empty one counts as unset.
func notRead[T any](parse func(string) (T, error)) func(given, string) bool {
	return func(_ given, value string) bool {
		_, err := parse(value)
		return value != "" && err != nil
	}
}

// whileTrue returns whether a value is true, which cannot work.
func whileTrue(_ given, value string) bool { return isTrueValue(value) }

func exporterVariables() []variable {
	const lists = "spec.dcgmExporter."
	return []variable{
		{"DCGM_EXPORTER_COLLECTORS", lists, func(s given, value string) bool {
			return s.effective().DCGMExporter.Config.Name != "" && value != metricsFile
		}, "names another file than spec.dcgmExporter.config, whose file then has no effect: remove one of them"},
		{"DCGM_EXPORTER_CONFIGMAP_DATA", lists, func(s given, value string) bool {
			// The exporter takes the value none for unset.
			return s.effective().DCGMExporter.Config.Name != "" && value != "" && value != "none"
		}, "takes the place of spec.dcgmExporter.config, whose file then has no effect: remove one of them"},
		{"DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", lists, func(s given, _ string) bool {
			exporter := s.effective().DCGMExporter
			return !*exporter.EnablePodLabels && !isTrue(exporter.Env, "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS")
		}, "has no effect without spec.dcgmExporter.enablePodLabels: set it to true"},
		{"DCGM_HPC_JOB_MAPPING_DIR", lists, func(s given, value string) bool {
			jobs := s.effective().DCGMExporter.HPCJobMapping
			return !*jobs.Enabled || jobs.Directory != value
		}, "names a directory that is not mounted: set spec.dcgmExporter.hpcJobMapping"},
		{"DCGM_POD_RESOURCES_KUBELET_SOCKET", lists, func(_ given, value string) bool {
			return path.Dir(value) != "/var/lib/kubelet/pod-resources"
		}, "names a socket that is not mounted: set spec.hostPaths.kubeletRootDir"},
	}
}

func pluginVariables() []variable {
	const plugin, gfd = "spec.devicePlugin.", "spec.gfd."
	const strategy = "is not read by all that depends on it: set spec.mig.strategy"
	const config = "names a file that is not mounted: set spec.devicePlugin.config.name"
	otherStrategy := func(s given, value string) bool {
		return value != string(s.effective().MIG.Strategy)
	}
	return []variable{
		{"DEVICE_LIST_STRATEGY", plugin, func(s given, value string) bool {
			return slices.Contains(strings.Split(value, ","), "volume-mounts") &&
				!isTrue(deref(s.Toolkit).Env, "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS")
		}, "has volume-mounts, which the toolkit does not accept: add ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS=true " +
			"to spec.toolkit.env"},
		{"MPS_ROOT", plugin, func(s given, value string) bool {
			return value != s.effective().DevicePlugin.MPS.Root
		}, "names a directory that is not mounted: set spec.devicePlugin.mps.root"},
		{"MIG_STRATEGY", plugin, otherStrategy, strategy},
		{"MIG_STRATEGY", gfd, otherStrategy, strategy},
		{"CONFIG_FILE", plugin, unless("/config/config.yaml"), config},
		{"CONFIG_FILE", gfd, unless("/config/config.yaml"), config},
		{"GFD_OUTPUT_FILE", gfd, unless(featuresFile), "names another file than " + featuresFile +
			", from which nodes get their labels: remove it"},
		{"GFD_ONESHOT", gfd, whileTrue, "ends the pods after each run, so that they restart again and again: remove it"},
	}
}

func toolkitVariables() []variable {
	const lists = "spec.toolkit."
	otherHandler := func(s given, value string) bool {
		return value != s.effective().Operator.RuntimeClass
	}
	return []variable{
		{"CONTAINERD_RUNTIME_CLASS", lists, otherHandler, "has no effect: set spec.operator.runtimeClass"},
		{"NVIDIA_RUNTIME_NAME", lists, otherHandler, "is the handler of no RuntimeClass: set spec.operator.runtimeClass"},
		{"ROOT", lists, func(s given, value string) bool {
			return value != s.effective().Toolkit.InstallDir
		}, "names a directory that is not mounted: set spec.toolkit.installDir"},
		{"CDI_OUTPUT_DIR", lists, unless("/var/run/cdi"),
			"names a directory that is not mounted: remove it, as container runtimes read /var/run/cdi"},
		{"CRIO_HOOKS_DIR", lists, unless("/usr/share/containers/oci/hooks.d"),
			"names a directory that is not mounted: remove it, as the directory of the host's CRI-O is mounted"},
		{"NO_DAEMON", lists, whileTrue, "ends the toolkit after each installation, so that its pods restart again and " +
			"again: remove it"},
	}
}

func managerVariables() []variable {
	const lists = "spec.migManager."
	return []variable{
		{"CONFIG_FILE", lists, nil, layoutsFile},
		{"DEFAULT_CONFIG_FILE", lists, nil, layoutsFile},
		{"GPU_CLIENTS_FILE", lists, nil, "names a file that is not mounted: set spec.migManager.gpuClientsConfig.name"},
	}
}

func validatorVariables() []variable {
	const all, driver, plugin = "spec.validator.env", "spec.validator.driver.", "spec.validator.plugin."
	const noBool = "is neither true nor false, so that the check ends at its start: set one of them"
	const links, skip, workload = "DISABLE_DEV_CHAR_SYMLINK_CREATION", "DRIVER_VALIDATION_SKIP_GPU_INIT", "WITH_WORKLOAD"
	return []variable{
		{"FAIL_AFTER", validatorLists, notRead(time.ParseDuration),
			"is no duration, so that the check ends at its start: set one, such as 5m"},
		{links, all, notRead(strconv.ParseBool), noBool}, {links, driver, notRead(strconv.ParseBool), noBool},
		{skip, all, notRead(strconv.ParseBool), noBool}, {skip, driver, notRead(strconv.ParseBool), noBool},
		{workload, all, notRead(strconv.ParseBool), noBool}, {workload, plugin, notRead(strconv.ParseBool), noBool},
		{"DRIVER_ROOT", validatorLists, nil, installDir},
		{"DRIVER_INSTALL_DIR", validatorLists, nil, installDir},
		{"DRIVER_INSTALL_DIR_CTR_PATH", validatorLists, nil, installDir},
		{"HOST_ROOT", validatorLists, nil, "is not read: set spec.hostPaths.rootFS"},
		{"COMPONENT", validatorLists, nil, once},
		{"WITH_WAIT", validatorLists, nil, once},
		{"CLEANUP_ALL", validatorLists, nil, "is not read: what an earlier driver has left is recognised as stale"},
		{"SLEEP_INTERVAL_SECONDS", validatorLists, nil, "is not read: set FAIL_AFTER to how long a check may fail"},
		{"OUTPUT_DIR", validatorLists, nil, "is not read: /run/nvidia/validations cannot be changed"},
		{"METRICS_PORT", validatorLists, nil, "is not read: the node status exporter has its own port"},
		{"KUBECONFIG", validatorLists, nil, "is not read: the pod has a service account"},
		{"OPERATOR_NAMESPACE", validatorLists, nil, "is not read: the pod knows its namespace"},
		{"DEFAULT_GPU_WORKLOAD_CONFIG", validatorLists, nil, "is not read: set spec.sandboxWorkloads.defaultWorkload"},
		{"VALIDATOR_IMAGE", validatorLists, nil, testPod},
		{"VALIDATOR_IMAGE_PULL_POLICY", validatorLists, nil, testPod},
		{"VALIDATOR_IMAGE_PULL_SECRETS", validatorLists, nil, testPod},
		{"VALIDATOR_RUNTIME_CLASS", validatorLists, nil, "is not read: set spec.operator.runtimeClass"},
	}
}

// isTrue reports whether an environment sets a variable to true.
func isTrue(env []v1.EnvVar, name string) bool {
	value := ""
	for _, variable := range env {
		if string(variable.Name) == name {
			value = variable.Value
		}
	}
	return isTrueValue(value)
}

func isTrueValue(value string) bool {
	isSet, err := strconv.ParseBool(value)
	return err == nil && isSet
}

// lostVariables returns a sentence for each variable of the spec that cannot work as it is written.
func lostVariables(spec given) []string {
	var found []string
	known := variables()
	effective.ForEachEnv(&spec.ClusterPolicySpec, func(list string, env *[]v1.EnvVar) {
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
