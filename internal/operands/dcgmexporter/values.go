package dcgmexporter

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/image"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
)

// Variables of the exporter that decide about its pod, too.
const (
	listenEnv    = "DCGM_EXPORTER_LISTEN"
	engineEnv    = "DCGM_REMOTE_HOSTENGINE_INFO"
	configMapEnv = "DCGM_EXPORTER_CONFIGMAP_DATA"
)

const (
	defaultListen  = ":9400"
	defaultMetrics = "/etc/dcgm-exporter/dcp-metrics-included.csv"
	metricsKey     = "dcgm-metrics.csv"
	customMetrics  = "/etc/dcgm-exporter/" + metricsKey
)

type values struct {
	Image, PullPolicy string
	Annotations       map[string]string
	// Token lets the exporter call the API.
	Token   bool
	HostPID bool
	Listen  string
	Port    int
	// Metrics is the file that chooses the metrics; MetricsConfigMap holds it where CustomMetrics.
	Metrics          string
	CustomMetrics    bool
	MetricsConfigMap string
	// Engine: the stand-alone engine is used.
	Engine                bool
	PodLabels, PodUID     bool
	LimitPodLabels        bool
	PodLabelAllowlist     string
	JobMapping            bool
	JobMappingDir         string
	ServiceType           corev1.ServiceType
	InternalTrafficPolicy corev1.ServiceInternalTrafficPolicy
	// OpenShift: rules give the metrics the names that OpenShift has for those of any accelerator.
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
		Image:             ref.Image,
		PullPolicy:        string(spec.ImagePullPolicy),
		Annotations:       spec.Annotations.Strings(),
		Token:             callsAPI(spec),
		HostPID:           *spec.HostPID,
		Listen:            listen,
		Port:              port,
		Metrics:           defaultMetrics,
		Engine:            in.DCGMEnabled(),
		PodLabels:         *spec.EnablePodLabels,
		PodUID:            *spec.EnablePodUID,
		LimitPodLabels:    len(spec.PodLabelAllowlistRegex) > 0,
		PodLabelAllowlist: strings.Join(spec.PodLabelAllowlistRegex, ","),
		JobMapping:        *spec.HPCJobMapping.Enabled,
		JobMappingDir:     spec.HPCJobMapping.Directory,
		// Said outright, so that what a user takes back goes back.
		ServiceType:           spec.Service.Type,
		InternalTrafficPolicy: *spec.Service.InternalTrafficPolicy,
		OpenShift:             in.OpenShift(),
	}
	if spec.Config.Name != "" {
		v.Metrics, v.CustomMetrics, v.MetricsConfigMap = customMetrics, true, spec.Config.Name
	}
	return v, nil
}

// variable is what the spec sets an environment variable to.
func variable(spec *v1.DCGMExporterSpec, name string) (value string, set bool) {
	for _, candidate := range spec.Env {
		if candidate.Name == name {
			return candidate.Value, true
		}
	}
	return "", false
}

// portOf is the port of the address that the exporter listens on, which probes and Service follow.
func portOf(listen string) (int, error) {
	_, text, err := net.SplitHostPort(listen)
	if err != nil {
		return 0, fmt.Errorf("env: %s is %q: write an address and a port, such as %s", listenEnv, listen, defaultListen)
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 {
		return 0, fmt.Errorf("env: %s is %q: the port must be a number from 1 to 65535", listenEnv, listen)
	}
	return port, nil
}

// callsAPI tells whether the exporter reads pods, or the ConfigMap that it takes its metrics from.
func callsAPI(spec *v1.DCGMExporterSpec) bool {
	configMap, _ := variable(spec, configMapEnv)
	return *spec.EnablePodLabels || *spec.EnablePodUID ||
		// The exporter takes the word none for none.
		configMap != "" && configMap != "none"
}

// engineOnHost tells whether the spec points the exporter to an engine that an administrator runs on
// the host: from the network of the pod it could not be reached. Beside the stand-alone engine of the
// policy, nothing is assumed.
func engineOnHost(in operand.Input) bool {
	address, set := variable(in.Spec.DCGMExporter, engineEnv)
	if !set || in.DCGMEnabled() {
		return false
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		// The port may be left out.
		host = address
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")).IsLoopback()
}
