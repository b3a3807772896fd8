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
	defaultListen     = ":9400"
	defaultMetrics    = "/etc/dcgm-exporter/dcp-metrics-included.csv"
	metricsKey        = "dcgm-metrics.csv"
	customMetrics     = "/etc/dcgm-exporter/" + metricsKey
	defaultJobMapping = "/var/lib/dcgm-exporter/job-mapping"
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
	Monitor               operand.Monitor
	// Accelerators: rules give the metrics the names that OpenShift has for those of any accelerator.
	Accelerators bool
}

func valuesOf(in operand.Input, spec v1.DCGMExporterSpec, ref image.Reference) (values, error) {
	listen, _ := variable(spec, listenEnv)
	listen = cmp.Or(listen, defaultListen)
	port, err := portOf(listen)
	if err != nil {
		return values{}, err
	}
	v := values{
		Image:             ref.Image,
		PullPolicy:        image.PullPolicy(spec.ImageSpec),
		Annotations:       spec.Annotations.Strings(),
		Token:             callsAPI(spec),
		HostPID:           operand.IsTrue(spec.HostPID, false),
		Listen:            listen,
		Port:              port,
		Metrics:           defaultMetrics,
		Engine:            in.DCGMEnabled(),
		PodLabels:         operand.IsTrue(spec.EnablePodLabels, false),
		PodUID:            operand.IsTrue(spec.EnablePodUID, false),
		LimitPodLabels:    len(spec.PodLabelAllowlistRegex) > 0,
		PodLabelAllowlist: strings.Join(spec.PodLabelAllowlistRegex, ","),
		// Said outright, so that what a user takes back goes back.
		ServiceType:           corev1.ServiceTypeClusterIP,
		InternalTrafficPolicy: corev1.ServiceInternalTrafficPolicyCluster,
		Monitor:               in.Monitor(app, spec.ServiceMonitor, false),
	}
	v.Accelerators = v.Monitor.PrometheusRule && in.OpenShift()
	if spec.Config != nil && spec.Config.Name != "" {
		v.Metrics, v.CustomMetrics, v.MetricsConfigMap = customMetrics, true, spec.Config.Name
	}
	if mapping := spec.HPCJobMapping; mapping != nil && operand.IsTrue(mapping.Enabled, false) {
		v.JobMapping, v.JobMappingDir = true, cmp.Or(mapping.Directory, defaultJobMapping)
	}
	if service := spec.Service; service != nil {
		v.ServiceType = cmp.Or(service.Type, v.ServiceType)
		if service.InternalTrafficPolicy != nil {
			v.InternalTrafficPolicy = cmp.Or(*service.InternalTrafficPolicy, v.InternalTrafficPolicy)
		}
	}
	return v, nil
}

// variable is what the spec sets an environment variable to.
func variable(spec v1.DCGMExporterSpec, name string) (value string, set bool) {
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
func callsAPI(spec v1.DCGMExporterSpec) bool {
	configMap, _ := variable(spec, configMapEnv)
	return operand.IsTrue(spec.EnablePodLabels, false) || operand.IsTrue(spec.EnablePodUID, false) ||
		// The exporter takes the word none for none.
		configMap != "" && configMap != "none"
}

// engineOnHost tells whether the spec points the exporter to an engine that an administrator runs on
// the host: from the network of the pod it could not be reached. Beside the stand-alone engine of the
// policy, nothing is assumed.
func engineOnHost(in operand.Input, spec v1.DCGMExporterSpec) bool {
	address, set := variable(spec, engineEnv)
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
