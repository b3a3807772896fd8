package dcgmexporter

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/policy/image"
)

// Variables of the exporter that also affect its pod.
const (
	listenEnv    = "DCGM_EXPORTER_LISTEN"
	engineEnv    = "DCGM_REMOTE_HOSTENGINE_INFO"
	configMapEnv = "DCGM_EXPORTER_CONFIGMAP_DATA"
	podLabelsEnv = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS"
	podUIDEnv    = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID"
)

// noConfigMap is the value of configMapEnv that the exporter treats as unset.
const noConfigMap = "none"

const (
	defaultListen  = ":9400"
	defaultMetrics = "/etc/dcgm-exporter/dcp-metrics-included.csv"
	metricsKey     = labels.ExporterMetricsKey
	customMetrics  = "/etc/dcgm-exporter/" + metricsKey
)

type values struct {
	Image, PullPolicy string
	Annotations       map[string]string
	// Token: the exporter's pod gets a token, as the exporter calls the API server.
	Token   bool
	HostPID bool
	Listen  string
	Port    int
	// Metrics is the file that selects the metrics.
	Metrics               string
	ServiceType           corev1.ServiceType
	InternalTrafficPolicy corev1.ServiceInternalTrafficPolicy
	// OpenShift: recording rules provide the metrics under OpenShift's names for any accelerator.
	OpenShift bool
}

func valuesOf(in operand.Input, ref image.Reference) (values, error) {
	spec := in.Spec.DCGMExporter
	listen, _ := variable(spec, listenEnv)
	listen = cmp.Or(listen, defaultListen)
	port, err := portOf(listen)
	if err != nil {
		return values{}, err
	}
	v := values{
		Image:       ref.Image,
		PullPolicy:  string(spec.ImagePullPolicy),
		Annotations: spec.Annotations.Strings(),
		Token:       callsAPI(spec),
		HostPID:     *spec.HostPID,
		Listen:      listen,
		Port:        port,
		Metrics:     defaultMetrics,
		// Always set, so that the default is restored when a user removes the value from the spec.
		ServiceType:           spec.Service.Type,
		InternalTrafficPolicy: *spec.Service.InternalTrafficPolicy,
		OpenShift:             in.OpenShift(),
	}
	if spec.Config.Name != "" {
		v.Metrics = customMetrics
	}
	return v, nil
}

// settings returns the environment, mounts and volumes that depend on the spec.
func settings(in operand.Input) (operand.Additions, []corev1.Volume) {
	spec := in.Spec.DCGMExporter
	jobs, jobsDir := *spec.HPCJobMapping.Enabled, spec.HPCJobMapping.Directory
	var added operand.Additions
	added.Env.AddIf(in.DCGMEnabled(), engineEnv, "nvidia-dcgm:5555")
	added.Env.AddIf(*spec.EnablePodLabels, podLabelsEnv, labels.True)
	added.Env.AddIf(*spec.EnablePodUID, podUIDEnv, labels.True)
	added.Env.AddIf(len(spec.PodLabelAllowlistRegex) > 0,
		"DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", strings.Join(spec.PodLabelAllowlistRegex, ","))
	added.Env.AddIf(jobs, "DCGM_HPC_JOB_MAPPING_DIR", jobsDir)
	var volumes []corev1.Volume
	add := func(mount corev1.VolumeMount, source corev1.VolumeSource) {
		mount.ReadOnly = true
		added.Mounts = append(added.Mounts, mount)
		volumes = append(volumes, corev1.Volume{Name: mount.Name, VolumeSource: source})
	}
	if spec.Config.Name != "" {
		source := &corev1.ConfigMapVolumeSource{Items: []corev1.KeyToPath{{Key: metricsKey, Path: metricsKey}}}
		source.Name = spec.Config.Name
		add(corev1.VolumeMount{Name: "metrics-config", MountPath: customMetrics, SubPath: metricsKey},
			corev1.VolumeSource{ConfigMap: source})
	}
	if jobs {
		// The workload manager writes the jobs of each GPU to this directory.
		source := &corev1.HostPathVolumeSource{Path: jobsDir, Type: new(corev1.HostPathDirectoryOrCreate)}
		add(corev1.VolumeMount{Name: "hpc-job-mapping", MountPath: jobsDir}, corev1.VolumeSource{HostPath: source})
	}
	return added, volumes
}

// variable returns the value that the spec sets for an environment variable.
func variable(spec *v1.DCGMExporterSpec, name string) (value string, set bool) {
	for _, candidate := range spec.Env {
		if candidate.Name == name {
			return candidate.Value, true
		}
	}
	return "", false
}

// portOf returns the port of the exporter's listen address. The probes and the Service use it.
func portOf(listen string) (int, error) {
	_, text, err := net.SplitHostPort(listen)
	if err != nil {
		return 0, fmt.Errorf("env: %s is %q: it must be an address and a port, such as %s", listenEnv, listen, defaultListen)
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 {
		return 0, fmt.Errorf("env: %s is %q: the port must be a number from 1 to 65535", listenEnv, listen)
	}
	return port, nil
}

// callsAPI reports whether the exporter reads pods, or the ConfigMap with its metrics.
func callsAPI(spec *v1.DCGMExporterSpec) bool {
	configMap, _ := variable(spec, configMapEnv)
	return *spec.EnablePodLabels || *spec.EnablePodUID || isTrue(spec, podLabelsEnv) || isTrue(spec, podUIDEnv) ||
		configMap != "" && configMap != noConfigMap
}

// isTrue reports whether the spec sets an environment variable to true.
func isTrue(spec *v1.DCGMExporterSpec, name string) bool {
	value, _ := variable(spec, name)
	isSet, err := strconv.ParseBool(value)
	return err == nil && isSet
}

// usesHostEngine reports whether the spec points the exporter to an engine on the host that is not the policy's. It can
// only be reached from the host's network.
func usesHostEngine(in operand.Input) bool {
	address, set := variable(in.Spec.DCGMExporter, engineEnv)
	if !set || in.DCGMEnabled() {
		return false
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		// The port is optional.
		host = address
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")).IsLoopback()
}
