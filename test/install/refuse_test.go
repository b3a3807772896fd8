package install

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/internal/names/version"
	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// refusals are invalid values, each with Helm's message.
var refusals = []struct {
	name, set, values string
	want              []string
}{
	{"a typo", "driver.verison=1", "", []string{"unknown value driver.verison: did you mean driver.version?"}},
	{
		"a capital", "devicePlugin.Enabled=true", "",
		[]string{"unknown value devicePlugin.Enabled: did you mean devicePlugin.enabled?"},
	},
	{
		"a whole block", "devicePlugins.enabled=true", "",
		[]string{"unknown value devicePlugins: did you mean devicePlugin?"},
	},
	{
		"deep below", "driver.upgradePolicy.drain.enabled=true", "",
		[]string{"unknown value driver.upgradePolicy.drain.enabled: did you mean driver.upgradePolicy.drain.enable?"},
	},
	{
		"in a list", "driver.env[0].name=A,driver.env[0].vlaue=1", "",
		[]string{"unknown value driver.env[0].vlaue: did you mean driver.env[0].value?"},
	},
	{
		"like a global key", "global.regsitry=a.b", "",
		[]string{"unknown value global.regsitry: did you mean global.registry?"},
	},
	{
		"a key of the operator", "operator.loging.level=debug", "",
		[]string{"unknown value operator.loging: did you mean operator.logging?"},
	},
	{
		"several at once", "driver.verison=1,toolkit.enabeld=true", "",
		[]string{"driver.verison: did you mean driver.version?", "toolkit.enabeld: did you mean toolkit.enabled?"},
	},
	{"a text for a switch", "driver.enabled=yes", "", []string{"/driver/enabled", "boolean"}},
	{"a switch for a block", "toolkit=true", "", []string{"/toolkit", "object"}},
	{"a block for a list", "driver.env.NAME=x", "", []string{"/driver/env", "array"}},
	{"an unknown MIG strategy", "mig.strategy=dual", "", []string{"/mig/strategy", "'none', 'single', 'mixed'"}},
	{"an unknown kind of modules", "driver.kernelModuleType=closed", "", []string{"/driver/kernelModuleType", "'open'"}},
	{
		"a toleration with an unknown operator", "driver.tolerations[0].operator=Exist", "",
		[]string{"/driver/tolerations/0/operator", "'Exists'"},
	},
	{
		"an unknown policy of pulls for the operator", "operator.imagePullPolicy=Sometimes", "",
		[]string{"/operator/imagePullPolicy", "'IfNotPresent'"},
	},
	{"a fraction for a version", "", "driver: {version: 580.10}", []string{"/driver/version", "string"}},
	{
		"a text for a number", "driver.upgradePolicy.maxParallelUpgrades=many", "",
		[]string{"/driver/upgradePolicy/maxParallelUpgrades", "integer"},
	},
	{
		"a number below what is possible", "driver.startupProbe.periodSeconds=0", "",
		[]string{"/driver/startupProbe/periodSeconds", "minimum"},
	},
	{"a GPU shared by one", "mps.enabled=true,mps.replicas=1", "", []string{"/mps/replicas", "minimum"}},
	{"an unknown mode of discovery", "nodeDiscovery.mode=manual", "", []string{"/nodeDiscovery/mode", "'builtin'"}},
	{
		"no key of a taint", "nodeStartup.taints[0].key=a\\'],nodeStartup.taints[0].effect=NoSchedule", "",
		[]string{"nodeStartup.taints[0].key is \"a']\": must be a taint key"},
	},
	{
		"drivers of hosts of virtual machines", "driver.nvidiaDriverCRD.driverType=vgpu-host-manager", "",
		[]string{"driver.nvidiaDriverCRD.driverType is vgpu-host-manager, which is not supported yet"},
	},
	{
		"an unknown type of driver", "driver.nvidiaDriverCRD.driverType=cpu", "",
		[]string{"/driver/nvidiaDriverCRD/driverType", "'vgpu'"},
	},
	{
		"what no NVIDIADriver has", "driver.nvidiaDriverCRD.enabled=true," +
			"driver.containerResources[0].name=nvidia-driver-ctr,driver.containerResources[0].limits.cpu=1", "",
		[]string{"driver.containerResources is set, and NVIDIADrivers have no such field"},
	},
	{
		"GPUCluster", "gpuCluster.deployCR=true", "",
		[]string{"gpuCluster.deployCR is true, and there is no kind GPUCluster here"},
	},
	{
		"a ConfigMap without a name", "devicePlugin.config.create=true,devicePlugin.config.data.a=b", "",
		[]string{"devicePlugin.config.create is true without devicePlugin.config.name"},
	},
	{
		"a ConfigMap without data", "devicePlugin.config.create=true,devicePlugin.config.name=a", "",
		[]string{"devicePlugin.config.create is true without devicePlugin.config.data"},
	},
	{
		"two names of one thing",
		"driver.upgradePolicy.gpuPodDeletion.force=true,driver.upgradePolicy.podDeletion.force=true", "",
		[]string{"driver.upgradePolicy has gpuPodDeletion and podDeletion"},
	},
	{
		"two names with two values", "mig.config=all-1g.10gb,migManager.config.default=all-disabled", "",
		[]string{"mig.config is all-1g.10gb and migManager.config.default is all-disabled"},
	},
	{
		"two configurations of the plugin", "mps.enabled=true,devicePlugin.config.name=a", "",
		[]string{"mps.enabled", "devicePlugin.config.name"},
	},
	{
		"a level of the log", "operator.logging.level=loud", "",
		[]string{`operator.logging.level is "loud": set it to error, info, debug or a number`},
	},
	{
		"a variable of the chart", "operator.env[0].name=OPERATOR_IMAGE", "",
		[]string{"operator.env: OPERATOR_IMAGE is set by the chart"},
	},
	{
		"a map for an image", "operator.initContainer.image.repository=nvcr.io/nvidia,driver.image.tag=1", "",
		[]string{
			"operator.initContainer.image is a map: set operator.initContainer.repository, operator.initContainer.image " +
				"and operator.initContainer.version, each to a text",
			"driver.image is a map: set driver.repository, driver.image and driver.version",
		},
	},
	{
		"a map for the operator's image", "operator.image.repository=a.b/c", "",
		[]string{"operator.image is a map: set operator.repository, operator.image and operator.version"},
	},
	{
		"a toleration of any value, with a value",
		"operator.tolerations[0].key=a,operator.tolerations[0].operator=Exists,operator.tolerations[0].value=b", "",
		[]string{"operator.tolerations[0].value must be empty if operator is Exists"},
	},
	{
		"a toleration without a key", "operator.tolerations[0].value=b", "",
		[]string{"operator.tolerations[0].operator must be Exists if key is empty"},
	},
	{
		"the end of a toleration of no eviction", "", "operator: {tolerations: [{key: a, tolerationSeconds: 60}]}",
		[]string{"operator.tolerations[0].effect must be NoExecute if tolerationSeconds is set"},
	},
	{
		"a toleration with an unknown effect", "", "operator: {tolerations: [{operator: Exists}, {key: a, effect: Never}]}",
		[]string{`operator.tolerations[1].effect is "Never"`},
	},
	{
		"a toleration with an unknown operator", "", "operator: {tolerations: [{key: a, operator: In}]}",
		[]string{`operator.tolerations[0].operator is "In"`},
	},
	{
		"a toleration of no key", "", "operator: {tolerations: [{key: a..b/c}]}",
		[]string{`operator.tolerations[0].key: "a..b/c" is not a key`},
	},
	{
		"requests of memory above the limit", "",
		"operator: {resources: {limits: {memory: 1Gi}, requests: {memory: 1025Mi}}}",
		[]string{"operator.resources.requests.memory is 1025Mi, which exceeds the limit of 1Gi"},
	},
	{
		"requests of processors above the limit", "", "operator: {resources: {limits: {cpu: 100m}, requests: {cpu: 1}}}",
		[]string{"operator.resources.requests.cpu is 1, which exceeds the limit of 100m"},
	},
	{
		"a negative limit", "", "operator: {resources: {limits: {cpu: -1}}}",
		[]string{`operator.resources.limits.cpu is "-1": it must be a quantity`},
	},
	{
		"a resource that no container has", "", "operator: {resources: {limits: {pods: 1}}}",
		[]string{"operator.resources.limits: pods is not a resource of containers"},
	},
	{
		"two values of a variable", "", "operator: {env: [{name: A, value: b, valueFrom: {fieldRef: {fieldPath: c}}}]}",
		[]string{"operator.env[0]: A has value and valueFrom: remove one"},
	},
	{
		"no name of a variable", "", "operator: {env: [{name: A=B, value: c}]}",
		[]string{`operator.env[0].name is "A=B": it must be the name of a variable`},
	},
	{
		"no key of a label of the operator", "", `operator: {labels: {"a b": c}}`,
		[]string{`operator.labels: "a b" is not a key`},
	},
	{
		"no value of a label of nodes", "", `operator: {nodeSelector: {a: "b c"}}`,
		[]string{`operator.nodeSelector: "b c" is not the value of a label`},
	},
	{
		"no key of an annotation of the operator", "", `operator: {annotations: {"-a": "b c"}}`,
		[]string{`operator.annotations: "-a" is not a key`},
	},
	{
		"no name of a priority class", "operator.priorityClassName=a..b", "", []string{`"a..b" is not the name of an object`},
	},
	{
		"a node affinity without values", "", "operator: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnored" +
			"DuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}]}]}}}}",
		[]string{"operator.affinity.nodeAffinity: the expression about a has In and no values"},
	},
	{
		"a node affinity above no number", "", "operator: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnored" +
			"DuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Gt, values: [b]}]}}]}}}",
		[]string{"operator.affinity.nodeAffinity: the expression about a has Gt, which needs one whole number"},
	},
	{
		"a node affinity without terms", "", "operator: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnored" +
			"DuringExecution: {nodeSelectorTerms: []}}}}",
		[]string{"operator.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution needs nodeSelectorTerms"},
	},
	{
		"a pod affinity without a topology", "", "operator: {affinity: {podAntiAffinity: {requiredDuringScheduling" +
			"IgnoredDuringExecution: [{labelSelector: {}}]}}}",
		[]string{"operator.affinity.podAntiAffinity: a term has no topologyKey"},
	},
	{
		"a full reference and more", "operator.image=a/b:c,operator.version=d", "",
		[]string{"operator.image holds a full reference"},
	},
}

func TestInvalidValuesAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range refusals {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := renderCase{values: test.values}
			if test.set != "" {
				c.flags = []string{"--set", test.set}
			}
			g := NewWithT(t)
			_, err := render(t, c.flagsOf(t)...)
			g.Expect(err).To(HaveOccurred())
			for _, want := range test.want {
				g.Expect(err.Error()).To(ContainSubstring(want))
			}
		})
	}
}

// Misspelt values are also refused if the chart does not create the policy.
func TestMisspeltValuesAreRefusedWithoutAPolicy(t *testing.T) {
	t.Parallel()
	_, err := render(t, set("clusterPolicy.deployCR=false driver.verison=1")...)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("driver.verison")))
}

// The chart has no upper bound: a cluster may be upgraded, and a client of Helm may assume a newer one.
func TestOlderClustersAreRefused(t *testing.T) {
	t.Parallel()
	_, err := render(t, "--kube-version", "1.31.9")
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("incompatible with Kubernetes v1.31.9")))
	for _, version := range []string{"1.32.0", "1.36.9", "1.34.1-eks-1234", "1.33.4+k3s1", "1.37.0-alpha.1", "1.41.0"} {
		_, err := render(t, "--kube-version", version)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	}
}

// Without --kube-version Helm assumes the release of its own libraries, which is newer than tested with Helm 3.
func TestNoClusterNeedsToBeNamed(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	for _, helm := range []packaged.HelmFunc{packaged.Helm, packaged.Helm3} {
		for _, command := range [][]string{{"template", release}, {"lint", "--strict"}} {
			_, err := helm(t.Context(), repo, t.TempDir(), nil, append(command, chart)...)
			g.Expect(err).NotTo(HaveOccurred())
		}
	}
}

// The notes of a newer cluster warn, and only those.
func TestNewerClustersAreWarned(t *testing.T) {
	t.Parallel()
	for kubernetes, warned := range map[string]bool{
		"1.32.0": false, "1.37.9-eks-1": false, "1.38.0": true, "2.0.0": true,
	} {
		g, notes := NewWithT(t), notesFor(t, kubernetes)
		g.Expect(notes).To(ContainSubstring("The GPU operator runs in namespace gpu-operator."))
		if warned {
			g.Expect(notes).To(ContainSubstring("Warning: Kubernetes v" + kubernetes +
				" is newer than this release has been tested on, 1.32 to 1.37."))
		} else {
			g.Expect(notes).NotTo(ContainSubstring("Warning"))
		}
	}
}

// Helm does not install the namespace, so that the notes have the command for its label.
func TestTheNotesNameTheLabelForOpenShiftsMonitoring(t *testing.T) {
	t.Parallel()
	const command = "oc label namespace gpu-operator openshift.io/cluster-monitoring=true"
	g := NewWithT(t)
	g.Expect(notesFor(t, version.NewestKubernetes+".0", set("platform.openshift=true")...)).To(ContainSubstring(command))
	g.Expect(notesFor(t, version.NewestKubernetes+".0")).NotTo(ContainSubstring("oc label"))
}

// notesFor returns the notes of the chart for a release of Kubernetes and flags of Helm. Helm prints notes only with a
// cluster, so that a copy of the chart has them in a ConfigMap as well.
func notesFor(t *testing.T, kubernetes string, flags ...string) string {
	t.Helper()
	return notesOf(t, chart, kubernetes, flags...)
}

// notesOf is notesFor of the chart in a folder.
func notesOf(t *testing.T, folder, kubernetes string, flags ...string) string {
	t.Helper()
	g := NewWithT(t)
	dir := filepath.Join(t.TempDir(), "gpu-operator")
	g.Expect(os.CopyFS(dir, os.DirFS(folder))).To(Succeed())
	text, err := os.ReadFile(filepath.Join(dir, "templates", "NOTES.txt"))
	g.Expect(err).NotTo(HaveOccurred())
	shown := `{{ define "notes" }}` + string(text) + `{{ end }}
apiVersion: v1
kind: ConfigMap
metadata: {name: notes}
data: {notes: {{ include "notes" $ | quote }}}
`
	g.Expect(os.WriteFile(filepath.Join(dir, "templates", "notes.yaml"), []byte(shown), 0o600)).To(Succeed())
	args := append([]string{"template", release, dir, "--namespace", namespace, "--kube-version", kubernetes}, flags...)
	printed, err := packaged.Helm(t.Context(), repo, t.TempDir(), nil, args...)
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := packaged.Decode(printed)
	g.Expect(err).NotTo(HaveOccurred())
	notes, _ := field(g, find(objects, "ConfigMap", "notes"), "data", "notes").(string)
	return notes
}
