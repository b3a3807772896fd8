package dropin

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// line is a line of values of NVIDIA's users.
type line struct {
	name    string
	verdict verdict
	because excuse
	// set has assignments separated by spaces, values is a file.
	set, values string
	// spec is a part of the policy: dotted paths with their values, nil for none.
	spec map[string]any
	// notes are parts of Helm's notes, or of the message if the line is refused.
	notes []string
	// then checks other objects.
	then func(g *WithT, objects []*unstructured.Unstructured)
	full bool
}

// lines are values of NVIDIA's chart, of its earlier releases, and of guides.
var lines = []line{
	{
		name: "a mirror for the operator", verdict: honoured,
		set:   "operator.repository=mirror.local/nvidia operator.version=v26.7.0",
		notes: []string{"mirror.local/nvidia/gpu-operator:", "If it is not there, copy it there"},
		then:  operatorsImage(HavePrefix("mirror.local/nvidia/gpu-operator:"), Not(HaveSuffix("v26.7.0"))),
	},
	{
		name: "OpenShift's driver toolkit, off by default", verdict: honoured, full: true,
		set:  "operator.use_ocp_driver_toolkit=false platform.openshift=false",
		spec: map[string]any{"operator.use_ocp_driver_toolkit": nil},
	},
	{
		name: "a ServiceMonitor of the exporter by default", verdict: honoured,
		spec: map[string]any{
			"dcgmExporter.serviceMonitor.enabled": true, "dcgmExporter.serviceMonitor.interval": "15s",
			"dcgmExporter.serviceMonitor.scrapeTimeout": "10s",
		},
	},
	{
		name: "a licence alone", verdict: honoured, full: true, set: "driver.licensingConfig.secretName=lic",
		spec: map[string]any{"driver.licensingConfig.secretName": "lic", "driver.licensingConfig.nlsEnabled": true},
	},
	{
		name: "MIG layouts by default", verdict: honoured, full: true,
		spec: map[string]any{"migManager.config.default": "all-disabled"},
	},
	{
		name: "layouts of one's own, with the default", verdict: honoured, full: true, set: "migManager.config.name=layouts",
		spec: map[string]any{"migManager.config.default": "all-disabled", "migManager.config.name": "layouts"},
	},
	{
		name: "a ConfigMap of the plugin without a default", verdict: honoured, full: true,
		set:   "devicePlugin.config.name=gpu-sharing-config",
		notes: []string{"config.default is not set: the operator uses the only key of ConfigMap gpu-sharing-config"},
		spec:  map[string]any{"devicePlugin.config.name": "gpu-sharing-config", "devicePlugin.config.default": nil},
	},
	{
		name: "a single created configuration of the plugin", verdict: honoured,
		values: "devicePlugin: {config: {create: true, name: shares, data: {any: \"version: v1\"}}}",
		spec:   map[string]any{"devicePlugin.config.name": "shares", "devicePlugin.config.default": "any"},
	},
	{
		name: "another name in labels", verdict: honoured, set: "nameOverride=gpus",
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			for _, o := range objects {
				if o.GetKind() != "CustomResourceDefinition" {
					g.Expect(o.GetLabels()).To(HaveKeyWithValue("app.kubernetes.io/name", "gpus"), o.GetName())
				}
			}
			g.Expect(field(g, find(g, objects, "Deployment", "gpu-operator"), "spec", "template", "metadata", "labels")).
				To(HaveKeyWithValue("app.kubernetes.io/name", "gpus"))
		},
	},
	{
		name: "another full name", verdict: ignored, full: true, set: "fullnameOverride=gpus",
		notes: []string{"fullnameOverride: the names of the objects are fixed"},
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			g.Expect(find(g, objects, "Deployment", "gpu-operator")).NotTo(BeNil())
		},
	},
	{
		name: "keys of earlier releases", verdict: ignored,
		set: "driver.rollingUpdate.maxUnavailable=1 gfd.migStrategy=single toolkit.securityContext.privileged=true " +
			"operator.validator.repository=nvcr.io/nvidia operator.validator.image=cuda devicePlugin.affinity.a=b " +
			"gfd.discoveryIntervalSeconds=60 driver.podSecurityContext.a=b driver.repoConfig.destinationDir=/etc/apt",
		notes: []string{
			"The chart has no such values, and ignores them:",
			"driver.rollingUpdate: unknown; did you mean daemonsets.rollingUpdate?", "gfd.migStrategy: unknown",
			"toolkit.securityContext: unknown", "operator.validator: unknown; did you mean validator?",
			"devicePlugin.affinity: unknown", "driver.repoConfig.destinationDir: unknown",
		},
	},
	{
		name: "a key of another block", verdict: ignored, full: true, set: "toolkit.kernelModuleType=open",
		notes: []string{"toolkit.kernelModuleType: unknown; did you mean driver.kernelModuleType?"},
	},
	{
		name: "nothing like it", verdict: ignored, full: true, set: "nothingLikeThis.at=all mig.profiles=2",
		notes: []string{"nothingLikeThis: unknown\n", "mig.profiles: unknown\n"},
	},
	{
		name: "a misspelt key", verdict: refused, because: misspelt, set: "driver.verison=580.82.07",
		notes: []string{"unknown value driver.verison: did you mean driver.version?"},
	},
	{
		name: "NVIDIADriver", verdict: honoured,
		set:  "driver.nvidiaDriverCRD.enabled=true driver.nvidiaDriverCRD.driverType=vgpu driver.version=580.82.07",
		spec: map[string]any{"driver.useNvidiaDriverCRD": true, "driver.version": "580.82.07"},
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			object := find(g, objects, "NVIDIADriver", "default")
			g.Expect(field(g, object, "spec")).To(And(HaveKeyWithValue("default", true),
				HaveKeyWithValue("driverType", "vgpu"), HaveKeyWithValue("version", "580.82.07")))
		},
	},
	{
		name: "drivers of hosts of virtual machines", verdict: refused, because: notSupported, full: true,
		set:   "driver.nvidiaDriverCRD.driverType=vgpu-host-manager",
		notes: []string{"driver.nvidiaDriverCRD.driverType is vgpu-host-manager, which is not supported yet"},
	},
	{
		name: "metrics without create", verdict: ignored, set: "dcgmExporter.config.data=x",
		notes: []string{"dcgmExporter.config.data: not used, as dcgmExporter.config.create is not true"},
	},
	{
		name: "configurations and layouts without create", verdict: ignored, full: true,
		values: "{devicePlugin: {config: {data: {a: b}}}, migManager: {config: {data: {config.yaml: a}}}}",
		notes:  []string{"devicePlugin.config.data: not used", "migManager.config.data: not used"},
	},
	{
		name: "layouts without data", verdict: ignored, full: true, set: "migManager.config.create=true",
		notes: []string{"migManager.config.create: no ConfigMap is created, as migManager.config.data is empty"},
	},
	{
		name: "flags of the operator", verdict: honoured,
		values: "operator: {args: [--leader-elect-namespace=gpus], logging: {level: error, timeEncoding: epoch}}",
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			g.Expect(operatorsContainer(g, objects)["args"]).To(ContainElements("--zap-log-level=error",
				"--zap-time-encoding=epoch", "--leader-elect-namespace=gpus"))
		},
	},
	{
		name: "any default runtime", verdict: ignored, full: true, set: "operator.defaultRuntime=cri-o",
		notes: []string{"operator.defaultRuntime: deprecated; the container runtime of each node is detected"},
		spec:  map[string]any{"operator.defaultRuntime": nil},
	},
	{
		name: "Node Feature Discovery", verdict: ignored,
		set: "nfd.enabled=true nfd.nodefeaturerules=true node-feature-discovery.worker.config.core.sleepInterval=60s",
		notes: []string{
			"nodes get no labels nvidia.com/gdrcopy.capable, nvidia.com/gds.capable and nvidia.com/peermem.capable",
			"so nodes get only its labels for GPUs, kernel and operating system",
		},
	},
	{
		name: "an own Node Feature Discovery", verdict: honoured, full: true, set: "nfd.enabled=false",
		spec: map[string]any{"nodeDiscovery.mode": "nfd"},
	},
	{
		name: "the CRD removed with the release", verdict: honoured, set: "operator.cleanupCRD=true",
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			job := find(g, objects, "Job", "gpu-operator-cleanup-crd")
			g.Expect(job.GetAnnotations()).To(HaveKeyWithValue("helm.sh/hook", "post-delete"))
		},
	},
	{
		name: "metrics by HTTP", verdict: honoured, full: true, set: "operator.metrics.secure=false",
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			g.Expect(operatorsContainer(g, objects)["args"]).To(ContainElement("--metrics-secure=false"))
			g.Expect(field(g, find(g, objects, "Deployment", "gpu-operator"), "spec", "template", "metadata",
				"annotations")).To(HaveKeyWithValue("prometheus.io/scrape", "true"))
		},
	},
	{
		name: "an operator on Linux", verdict: honoured,
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			for _, path := range [][]string{{"Deployment", "gpu-operator"}, {"Job", "gpu-operator-upgrade-crd"}} {
				g.Expect(field(g, find(g, objects, path[0], path[1]), "spec", "template", "spec", "nodeSelector")).
					To(Equal(map[string]any{"kubernetes.io/os": "linux"}))
			}
		},
	},
}

// TestValues installs the chart with each line of values, and reads the policy, the other objects and the notes.
func TestValues(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t)
	var rows []row
	for _, l := range lines {
		rows = append(rows, row{
			name: l.name, verdict: l.verdict, because: l.because, full: l.full,
			check: func(e *env) { e.installLine(l) },
		})
	}
	e.tryAll(valueLines, rows)
}

func (e *env) installLine(l line) {
	e.t.Helper()
	flags := packaged.Sets(l.set)
	if l.values != "" {
		flags = append(flags, e.valuesFile(l.values)...)
	}
	out, err := e.tryHelm(append([]string{"install", release, chart, "--create-namespace", "--no-hooks"}, flags...)...)
	if l.verdict == refused {
		e.Expect(err).To(HaveOccurred())
		out = err.Error()
	} else {
		e.Expect(err).NotTo(HaveOccurred())
		defer e.helm("uninstall", release, "--no-hooks")
	}
	for _, note := range l.notes {
		e.Expect(out).To(ContainSubstring(note))
	}
	if l.verdict == ignored && l.notes == nil {
		e.t.Error("the user is not informed")
	}
	for path, want := range l.spec {
		got := field(e.WithT, e.policy(policyName), append([]string{"spec"}, strings.Split(path, ".")...)...)
		if want == nil {
			e.Expect(got).To(BeNil(), path)
			continue
		}
		e.Expect(got).To(Equal(want), path)
	}
	if l.then != nil {
		l.then(e.WithT, render(e.t, l.set, flags...))
	}
}

// operatorsContainer returns the operator's container.
func operatorsContainer(g *WithT, objects []*unstructured.Unstructured) map[string]any {
	containers, _ := field(g, find(g, objects, "Deployment", "gpu-operator"), "spec", "template", "spec",
		"containers").([]any)
	g.Expect(containers).To(HaveLen(1))
	container, _ := containers[0].(map[string]any)
	return container
}

// operatorsImage checks the image of the operator, and that of its helper containers.
func operatorsImage(want ...types.GomegaMatcher) func(*WithT, []*unstructured.Unstructured) {
	return func(g *WithT, objects []*unstructured.Unstructured) {
		container := operatorsContainer(g, objects)
		g.Expect(container["image"]).To(And(want...))
		g.Expect(container["env"]).To(ContainElement(And(HaveKeyWithValue("name", "OPERATOR_IMAGE"),
			HaveKeyWithValue("value", container["image"]))))
	}
}
