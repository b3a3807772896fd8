package install

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// imageIs checks the image of the operator, also in its variable OPERATOR_IMAGE.
func imageIs(want string) func(*WithT, []*unstructured.Unstructured) {
	return func(g *WithT, objects []*unstructured.Unstructured) {
		container := manager(g, objects)
		g.Expect(container).To(HaveKeyWithValue("image", want))
		g.Expect(container["env"]).To(ContainElement(map[string]any{"name": "OPERATOR_IMAGE", "value": want}))
		for _, kind := range []string{
			"Job/gpu-operator-upgrade-crd", "Job/gpu-operator-uninstall", "Pod/gpu-operator-test",
		} {
			hook := byName(objects)[kind]
			path := []string{"spec", "containers"}
			if hook.GetKind() == "Job" {
				path = []string{"spec", "template", "spec", "containers"}
			}
			containers, _ := field(g, hook, path...).([]any)
			g.Expect(containers).To(ConsistOf(HaveKeyWithValue("image", want)))
		}
	}
}

// argsEnd checks the last flags of the operator.
func argsEnd(want ...any) func(*WithT, []*unstructured.Unstructured) {
	return func(g *WithT, objects []*unstructured.Unstructured) {
		args, _ := manager(g, objects)["args"].([]any)
		g.Expect(args).To(ContainElement("--leader-elect"))
		g.Expect(args[3:]).To(HaveExactElements(want...))
	}
}

// ownTaintsAre checks which taints the admission policy lets the operator change.
func ownTaintsAre(want string) func(*WithT, []*unstructured.Unstructured) {
	return func(g *WithT, objects []*unstructured.Unstructured) {
		variables := field(g, find(objects, "ValidatingAdmissionPolicy", "gpu-operator-operator"), "spec", "variables")
		g.Expect(variables).To(ContainElement(map[string]any{"name": "ownTaints", "expression": want}))
	}
}

// deployments are values for the operator's Deployment.
var deployments = []renderCase{
	{
		name: "the image of a release", then: imageIs(packaged.ReleaseImage),
		set: "operator.upgradeCRD=true",
	},
	{
		name: "a copy of it, whose digest may differ", set: "operator.repository=registry.local",
		then: imageIs("registry.local/gpu-operator:v1.2.3"),
	},
	{
		name: "the repository of the release, spelt out", set: "operator.repository=registry.example.com/gpu/",
		then: imageIs(packaged.ReleaseImage),
	},
	{
		name: "another image beside it", set: "operator.image=patched",
		then: imageIs("registry.example.com/gpu/patched:v1.2.3"),
	},
	{name: "a tag", set: "operator.version=v1.2.2", then: imageIs("registry.example.com/gpu/gpu-operator:v1.2.2")},
	{
		name: "an image of a registry",
		set:  "operator.repository=registry.local:5000/gpu operator.image=op operator.version=1",
		then: imageIs("registry.local:5000/gpu/op:1"),
	},
	{
		name: "an image's digest", set: "operator.version=sha256:abc",
		then: imageIs("registry.example.com/gpu/gpu-operator@sha256:abc"),
	},
	{
		name: "a full reference", set: "operator.image=registry.local/op@sha256:abc",
		then: imageIs("registry.local/op@sha256:abc"),
	},
	{
		name: "NVIDIA's operator",
		set:  "operator.repository=nvcr.io/nvidia operator.image=gpu-operator operator.version=v26.3.0",
		then: imageIs(packaged.ReleaseImage),
	},
	{
		name: "a mirror of it", set: "global.registry=mirror.local/proxy", spec: "global: {registry: mirror.local/proxy}",
		then: imageIs(strings.Replace(packaged.ReleaseImage, "registry.example.com", "mirror.local/proxy", 1)),
	},
	{
		name: "an image in the mirror", set: "global.registry=mirror.local operator.repository=mirror.local/gpu",
		spec: "global: {registry: mirror.local}", then: imageIs("mirror.local/gpu/gpu-operator:v1.2.3"),
	},
	{
		name: "an image of Docker's registry in the mirror", set: "global.registry=mirror.local operator.image=acme/op:1",
		spec: "global: {registry: mirror.local}", then: imageIs("mirror.local/acme/op:1"),
	},
	{name: "pull secrets of both kinds", set: "operator.imagePullSecrets[0]=a operator.imagePullPolicy=Always " +
		"global.imagePullSecrets[0]=b", spec: "global: {imagePullSecrets: [b]}",
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			g.Expect(pod(g, objects)["spec"]).To(HaveKeyWithValue("imagePullSecrets",
				[]any{map[string]any{"name": "a"}, map[string]any{"name": "b"}}))
			g.Expect(manager(g, objects)).To(HaveKeyWithValue("imagePullPolicy", "Always"))
			g.Expect(field(g, find(objects, "Pod", "gpu-operator-test"), "spec", "imagePullSecrets")).To(HaveLen(2))
		}},
	{name: "debugging", set: "operator.logging.level=debug", then: argsEnd("--zap-log-level=debug")},
	{name: "debugging by number", set: "operator.logging.level=2", then: argsEnd("--zap-log-level=2")},
	{name: "debugging as in development", set: "operator.logging.develMode=true", then: argsEnd("--zap-devel")},
	{name: "errors only", set: "operator.logging.level=error", then: argsEnd("--zap-log-level=error")},
	{
		name: "NVIDIA's logging",
		set:  "operator.logging.timeEncoding=epoch operator.logging.level=info operator.logging.develMode=false",
		then: argsEnd("--zap-time-encoding=epoch"),
	},
	{name: "level zero", set: "operator.logging.level=0", then: argsEnd()},
	{
		name: "flags", set: "operator.args[0]=--debug operator.args[1]=3 operator.logging.level=debug",
		then: argsEnd("--zap-log-level=debug", "--debug", "3"),
	},
	{
		name: "beside NVIDIA's operator", set: "operator.takeOver=true operator.args[0]=--debug",
		then: argsEnd("--take-over", "--debug"),
	},
	{name: "not beside NVIDIA's operator", set: "operator.takeOver=false", then: argsEnd()},
	{name: "metrics by HTTP", set: "operator.metrics.secure=false", then: func(g *WithT,
		objects []*unstructured.Unstructured) {
		argsEnd("--metrics-secure=false")(g, objects)
		g.Expect(field(g, &unstructured.Unstructured{Object: pod(g, objects)}, "metadata", "annotations")).To(And(
			HaveKeyWithValue("prometheus.io/scrape", "true"), HaveKeyWithValue("prometheus.io/port", "8080")))
	}},
	{name: "one pod", set: "operator.replicas=1", then: func(g *WithT, objects []*unstructured.Unstructured) {
		g.Expect(field(g, find(objects, "Deployment", "gpu-operator"), "spec", "replicas")).To(BeEquivalentTo(1))
	}},
	{name: "no pod", set: "operator.replicas=0", then: func(g *WithT, objects []*unstructured.Unstructured) {
		g.Expect(field(g, find(objects, "Deployment", "gpu-operator"), "spec", "replicas")).To(BeEquivalentTo(0))
	}},
	{name: "a variable", values: "operator: {env: [{name: HTTPS_PROXY, value: \"http://proxy\"}, {name: SECRET, " +
		"valueFrom: {secretKeyRef: {name: a, key: b}}}]}", then: func(g *WithT, objects []*unstructured.Unstructured) {
		g.Expect(manager(g, objects)["env"]).To(ContainElements(
			map[string]any{"name": "HTTPS_PROXY", "value": "http://proxy"},
			map[string]any{
				"name": "SECRET", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "a", "key": "b"}},
			},
		))
	}},
	{name: "where the operator runs", values: "operator: {nodeSelector: {pool: system}, tolerations: [{key: a, " +
		"operator: Exists}], affinity: {nodeAffinity: {}}, priorityClassName: high}", then: func(g *WithT,
		objects []*unstructured.Unstructured) {
		spec := pod(g, objects)["spec"]
		g.Expect(spec).To(HaveKeyWithValue("nodeSelector", map[string]any{"pool": "system"}))
		g.Expect(spec).To(HaveKeyWithValue("tolerations", []any{map[string]any{"key": "a", "operator": "Exists"}}))
		g.Expect(spec).To(HaveKeyWithValue("affinity", map[string]any{"nodeAffinity": map[string]any{}}))
		g.Expect(spec).To(HaveKeyWithValue("priorityClassName", "high"))
		hook := field(g, find(objects, "Job", "gpu-operator-upgrade-crd"), "spec", "template", "spec")
		g.Expect(hook).To(HaveKeyWithValue("nodeSelector", map[string]any{"pool": "system"}))
		g.Expect(hook).To(HaveKeyWithValue("tolerations", []any{map[string]any{"key": "a", "operator": "Exists"}}))
	}},
	{name: "neither affinity nor tolerations", values: "operator: {affinity: {}, tolerations: []}", then: func(g *WithT,
		objects []*unstructured.Unstructured) {
		g.Expect(pod(g, objects)["spec"]).To(HaveKeyWithValue("affinity", BeEmpty()))
		g.Expect(pod(g, objects)["spec"]).To(HaveKeyWithValue("tolerations", BeEmpty()))
	}},
	{name: "labels and annotations", values: "operator: {labels: {team: hpc, number: 1, app: other}, annotations: " +
		"{openshift.io/scc: restricted-readonly}}", then: func(g *WithT, objects []*unstructured.Unstructured) {
		labels := field(g, &unstructured.Unstructured{Object: pod(g, objects)}, "metadata", "labels")
		g.Expect(labels).To(HaveKeyWithValue("team", "hpc"))
		g.Expect(labels).To(HaveKeyWithValue("number", "1"))
		g.Expect(labels).To(HaveKeyWithValue("app", "gpu-operator"))
		g.Expect(field(g, &unstructured.Unstructured{Object: pod(g, objects)}, "metadata",
			"annotations")).To(HaveKeyWithValue("openshift.io/scc", "restricted-readonly"))
		g.Expect(find(objects, "Deployment", "gpu-operator").GetLabels()).To(HaveKeyWithValue("team", "hpc"))
	}},
	{name: "resources as NVIDIA has them", values: "operator: {resources: {limits: {cpu: 500m, memory: 350Mi}, " +
		"requests: {cpu: 200m, memory: 100Mi}}}", then: func(g *WithT, objects []*unstructured.Unstructured) {
		g.Expect(manager(g, objects)["resources"]).To(Equal(map[string]any{
			"limits":   map[string]any{"cpu": "500m", "memory": "350Mi"},
			"requests": map[string]any{"cpu": "200m", "memory": "100Mi"},
		}))
	}},
	{name: "settings removed with null", values: "operator: {resources: {limits: {cpu: null, memory: 1Gi}, requests: " +
		"{cpu: 2, memory: null}}, nodeSelector: {pool: null, team: a}, labels: {team: null}, annotations: {note: null}, " +
		"tolerations: null, affinity: {nodeAffinity: null}, env: null}", then: func(g *WithT,
		objects []*unstructured.Unstructured) {
		g.Expect(manager(g, objects)["resources"]).To(Equal(map[string]any{
			"limits": map[string]any{"memory": "1Gi"}, "requests": map[string]any{"cpu": int64(2)},
		}))
		spec := pod(g, objects)["spec"]
		g.Expect(spec).To(HaveKeyWithValue("nodeSelector", map[string]any{"team": "a"}))
		g.Expect(spec).To(HaveKeyWithValue("affinity", BeEmpty()))
		own := &unstructured.Unstructured{Object: pod(g, objects)}
		g.Expect(field(g, own, "metadata", "labels")).NotTo(HaveKey("team"))
		g.Expect(field(g, own, "metadata", "annotations")).NotTo(HaveKey("note"))
		hook, _ := field(g, find(objects, "Job", "gpu-operator-upgrade-crd"), "spec", "template", "spec",
			"containers").([]any)
		g.Expect(hook).To(ConsistOf(HaveKeyWithValue("resources", manager(g, objects)["resources"])))
	}},
	{name: "a CPU limit removed with null", set: "operator.resources.limits.cpu=null", then: func(g *WithT,
		objects []*unstructured.Unstructured) {
		g.Expect(field(g, &unstructured.Unstructured{Object: manager(g, objects)}, "resources", "limits")).To(BeEmpty())
	}},
	{
		name: "the operator's fields of the policy",
		set: "operator.runtimeClass=gpu operator.metrics.serviceMonitor.interval=30s operator.refreshHelpers=true " +
			"operator.keepWithoutNodes=true",
		spec: "operator: {runtimeClass: gpu, metrics: {serviceMonitor: {interval: 30s}}, refreshHelpers: true, " +
			"keepWithoutNodes: true}",
	},
	{name: "start-up taints", values: "nodeStartup: {onFailure: taint, taints: [{key: example.com/starting, effect: " +
		"NoSchedule}, {key: nvidia.com/gpu-operator.not-ready, effect: NoSchedule}]}",
		spec: "nodeStartup: {onFailure: taint, taints: [{key: example.com/starting, effect: NoSchedule}, {key: " +
			"nvidia.com/gpu-operator.not-ready, effect: NoSchedule}]}",
		then: ownTaintsAre("['nvidia.com/gpu-operator.not-ready', 'nvidia.com/gpu-operator.unhealthy', " +
			"'example.com/starting']")},
	{name: "no start-up taints", values: "nodeStartup: null",
		then: ownTaintsAre("['nvidia.com/gpu-operator.not-ready', 'nvidia.com/gpu-operator.unhealthy']")},
	{name: "no hook", set: "operator.upgradeCRD=false operator.cleanupCRD=false", then: func(g *WithT,
		objects []*unstructured.Unstructured) {
		for name := range byName(objects) {
			g.Expect(name).NotTo(ContainSubstring("upgrade-crd"))
		}
	}},
	{name: "more objects", values: "extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: \"{{ " +
		".Release.Name }}-extra\"}}, \"apiVersion: v1\\nkind: Secret\\nmetadata: {name: {{ .Release.Namespace }}-text}\\n\"]",
		then: func(g *WithT, objects []*unstructured.Unstructured) {
			g.Expect(find(objects, "ConfigMap", "gpu-operator-extra")).NotTo(BeNil())
			g.Expect(find(objects, "Secret", "gpu-operator-text")).NotTo(BeNil())
		}},
}

// The chart in the repository has no image: Helm fails with the remedy, also for values of NVIDIA's chart.
func TestTheUnreleasedChartNeedsAnImage(t *testing.T) {
	t.Parallel()
	unreleased := func(flags ...string) (string, error) {
		return packaged.Helm(t.Context(), repo, t.TempDir(), nil,
			append([]string{"template", release, repo + "/" + packaged.Chart}, flags...)...)
	}
	for _, flags := range [][]string{
		nil, set("operator.version=v1"), set("operator.repository=nvcr.io/nvidia"), set("global.registry=mirror.local"),
	} {
		_, err := unreleased(flags...)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("this chart is not released and has no image: " +
			"set operator.repository and operator.version")))
	}
	for want, flags := range map[string]string{
		"registry.local/gpu-operator:dev": "operator.repository=registry.local",
		"registry.local/a/b:c":            "operator.repository=registry.local/a operator.image=b operator.version=c",
		"registry.local/op:1":             "operator.image=registry.local/op:1",
	} {
		g := NewWithT(t)
		text, err := unreleased(set(flags)...)
		g.Expect(err).NotTo(HaveOccurred())
		objects, err := packaged.Decode(text)
		g.Expect(err).NotTo(HaveOccurred())
		imageIs(want)(g, objects)
	}
}

// TestTheOperatorIsNeverNVIDIAs renders each case of the rule that internal/policy/image has for the validator.
func TestTheOperatorIsNeverNVIDIAs(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	text, err := os.ReadFile(repo + "/internal/policy/image/testdata/nvidias.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	var tests []map[string]any
	g.Expect(yaml.Unmarshal(text, &tests)).To(Succeed())
	g.Expect(len(tests)).To(BeNumerically(">", 15))
	for _, test := range tests {
		name, _ := test["name"].(string)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, _ := test["operator"].(string)
			c := renderCase{then: imageIs(want), flags: set("mig.strategy=single")}
			for _, key := range []string{"repository", "image", "version"} {
				if value, isSet := test[key].(string); isSet {
					c.flags = append(c.flags, "--set-string", "operator."+key+"="+value)
				}
			}
			c.check(t)
		})
	}
}
