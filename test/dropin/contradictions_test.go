package dropin

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// contradictions are values that contradict each other or cannot work, each with what the message names.
var contradictions = []struct {
	name, set string
	// atOnce: the chart itself finds it, also without a cluster.
	atOnce bool
	want   []string
	full   bool
}{
	{
		"NRI without CDI", "cdi.enabled=false cdi.nriPluginEnabled=true", false,
		[]string{"spec.cdi", "nriPluginEnabled needs CDI: remove cdi.enabled=false or nriPluginEnabled"}, false,
	},
	{
		"precompiled drivers with GPUDirect Storage", "driver.usePrecompiled=true driver.version=580 gds.enabled=true", false,
		[]string{"spec.driver.usePrecompiled", "must not be set together with gds.enabled"}, true,
	},
	{
		"a scrape that takes longer than its interval", "dcgmExporter.serviceMonitor.interval=5s", false,
		[]string{"spec.dcgmExporter.serviceMonitor", "must not be longer than interval"}, true,
	},
	{
		"requests above limits", "toolkit.resources.requests.cpu=2 toolkit.resources.limits.cpu=1", false,
		[]string{"spec.toolkit.resources", "requests exceed limits"}, true,
	},
	{
		"a registry with a scheme", "driver.repository=https://mirror.local/nvidia", true,
		[]string{"driver.repository", "must be a registry and path without https://"}, false,
	},
	{
		"a relative path", "toolkit.installDir=opt/nvidia", true,
		[]string{"toolkit.installDir", "must be an absolute path, such as /opt/nvidia"}, true,
	},
	{
		"a name in capitals", "devicePlugin.config.name=Shares", true,
		[]string{"devicePlugin.config.name", "must be a lowercase RFC 1123 subdomain"}, false,
	},
	{
		"a key of labels", "daemonsets.labels.a/b/c=d", true,
		[]string{"daemonsets.labels", "keys must be label keys"}, true,
	},
}

// TestContradictionsInstallNothing installs and upgrades with contradictory values: the message names the field, and
// nothing is written.
func TestContradictionsInstallNothing(t *testing.T) {
	cluster.SkipInSample(t)
	t.Parallel()
	e := newEnv(t)
	var rows []row
	for _, c := range contradictions {
		check := func(e *env) {
			e.refusedAs(c.want, append([]string{"install", release, chart, "--create-namespace"}, packaged.Sets(c.set)...)...)
			e.nothingInstalled()
			_, err := e.tryHelm("uninstall", release, "--no-hooks")
			e.Expect(err != nil).To(Equal(c.atOnce), "a release is recorded unless the chart itself finds it")
		}
		rows = append(rows, row{
			name: "install, " + c.name, verdict: refused, because: failsThere, full: c.full, check: check,
		})
	}
	e.tryAll(policyLines, rows)

	e.install("operator.upgradeCRD=false")
	before := e.deployment()
	rows = nil
	for _, c := range contradictions {
		check := func(e *env) {
			e.refusedAs(c.want, append([]string{
				"upgrade", release, chart, "--set", "operator.upgradeCRD=false,operator.replicas=1",
			}, packaged.Sets(c.set)...)...)
			e.Expect(e.deployment()).To(Equal(before))
			e.Expect(e.list("nvidia.com/v1 ClusterPolicy")).To(ConsistOf(policyName))
		}
		rows = append(rows, row{
			name: "upgrade, " + c.name, verdict: refused, because: failsThere, full: c.full, check: check,
		})
	}
	e.tryAll(policyLines, rows)
	e.helm("upgrade", release, chart, "--set", "operator.upgradeCRD=false,operator.replicas=1")
	e.Expect(e.list("nvidia.com/v1 ClusterPolicy")).To(ConsistOf(policyName))
}

// refusedAs runs Helm, whose message must have these parts.
func (e *env) refusedAs(want []string, args ...string) {
	e.t.Helper()
	_, err := e.tryHelm(args...)
	for _, part := range want {
		e.Expect(err).To(MatchError(ContainSubstring(part)))
	}
}

// nothingInstalled checks that no object of the chart is in the cluster.
func (e *env) nothingInstalled() {
	e.t.Helper()
	for _, kind := range []string{
		"nvidia.com/v1 ClusterPolicy", "apps/v1 Deployment", "rbac.authorization.k8s.io/v1 ClusterRole",
		"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy", "v1 ServiceAccount", "batch/v1 Job",
	} {
		for _, name := range e.list(kind) {
			e.Expect(name).NotTo(Or(ContainSubstring("gpu-operator"), ContainSubstring("cluster-policy")), kind)
		}
	}
}

// list returns the names of the objects of a kind.
func (e *env) list(kind string) []string {
	e.t.Helper()
	version, kind, _ := strings.Cut(kind, " ")
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.FromAPIVersionAndKind(version, kind+"List"))
	e.Expect(e.client.List(e.t.Context(), list)).To(Succeed())
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return names
}
