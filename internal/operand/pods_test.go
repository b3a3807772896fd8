package operand_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/operand"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/dcgmexporter"
	"github.com/clusterpolicy/gpu-operator/internal/operand/operands/driver"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// A field that the API server refuses in a DaemonSet is named as users know it: the one that decides about it.
func TestFieldsOfAPathInADaemonSet(t *testing.T) {
	const pod = "spec.template.spec."
	toleration := []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpLt, Value: "1"}}
	spec := v1.ClusterPolicySpec{
		DaemonSets: &v1.DaemonSetsSpec{
			Tolerations: toleration, Labels: v1.Labels{"a": "b"}, PodSecurityContext: &corev1.PodSecurityContext{
				RunAsUser: new(int64(-1)),
			},
		},
		DCGMExporter: &v1.DCGMExporterSpec{
			PlacementSpec: v1.PlacementSpec{Labels: v1.Labels{"c": "d"}},
			ContainerSpec: v1.ContainerSpec{Resources: &v1.ResourceRequirements{Limits: corev1.ResourceList{"a": {}}}},
		},
		Driver: &v1.DriverSpec{PlacementSpec: v1.PlacementSpec{Tolerations: toleration}},
		NodePools: []v1.NodePoolSpec{{
			Name: "a", NodeSelector: v1.NodePoolSelector{"a": "b"}, Driver: &v1.NodePoolDriverSpec{
				PriorityClassName: "a", PodSecurityContext: &corev1.PodSecurityContext{RunAsUser: new(int64(-1))},
			},
		}},
	}
	in := operand.Input{Spec: effective.Of(spec)}
	exporter, drivers := dcgmexporter.Operand(), driver.Operand()
	pool := in.ForNodePool(operand.NodePools(in.Spec)[0])
	object := pool
	object.OfNVIDIADriver = true
	for _, test := range []struct {
		o    operand.Operand
		in   operand.Input
		path string
		want []string
	}{
		{exporter, in, pod + "tolerations[0].operator", []string{"spec.daemonsets.tolerations"}},
		{drivers, in, pod + "tolerations[0].operator", []string{"spec.driver.tolerations"}},
		{exporter, in, pod + "containers[0].resources.limits[a]", []string{"spec.dcgmExporter.resources"}},
		{exporter, in, pod + "securityContext.runAsUser", []string{"spec.daemonsets.podSecurityContext"}},
		{exporter, in, pod + "containers[0].securityContext.privileged", []string{"spec.dcgmExporter"}},
		{exporter, in, "spec.template.labels", []string{"spec.dcgmExporter.labels", "spec.daemonsets.labels"}},
		{exporter, in, "metadata.labels", []string{"spec.dcgmExporter.labels", "spec.daemonsets.labels"}},
		{exporter, in, pod + "containers[0].image", []string{"spec.dcgmExporter"}},
		{exporter, in, pod + "containers[0].volumeMounts[2].mountPath", []string{"spec.hostPaths", "spec.global.caBundle"}},
		{drivers, pool, pod + "priorityClassName", []string{"spec.nodePools[].driver.priorityClassName"}},
		{drivers, pool, pod + "securityContext.fsGroup", []string{"spec.nodePools[].driver.podSecurityContext"}},
		{drivers, object, pod + "tolerations[0].key", []string{"spec.tolerations"}},
		{drivers, object, pod + "initContainers[0].image", []string{"spec"}},
		{operand.Operand{}, in, pod + "tolerations[0].key", nil},
	} {
		if got := test.in.FieldsOf(&test.o, test.path); !slices.Equal(got, test.want) {
			t.Errorf("%s, %s: got %v, want %v", test.o.Name, test.path, got, test.want)
		}
	}
}

// Each field of an operand's block that is set is the one that decides about its part.
func TestFieldsOfAnOperandsBlock(t *testing.T) {
	one := intstr.FromInt32(1)
	spec := v1.ClusterPolicySpec{
		Global: &v1.GlobalSpec{ImagePullSecrets: []v1.ObjectName{"a"}},
		DaemonSets: &v1.DaemonSetsSpec{
			PriorityClassName: "a", NodeSelector: v1.Labels{"a": "b"}, Annotations: v1.Annotations{"a": "b"},
			RollingUpdate: &v1.RollingUpdateSpec{MaxUnavailable: &one},
		},
		Driver: &v1.DriverSpec{
			StartupProbe: &v1.ProbeSpec{PeriodSeconds: 1}, LivenessProbe: &v1.ProbeSpec{PeriodSeconds: 1},
			ReadinessProbe: &v1.ProbeSpec{PeriodSeconds: 1}, SecretEnv: "a",
			ImageSpec: v1.ImageSpec{ImagePullSecrets: []v1.ObjectName{"a"}},
			ContainerSpec: v1.ContainerSpec{
				Args: []string{"a"}, Env: []v1.EnvVar{{Name: "a"}}, HostNetwork: new(true),
			},
		},
	}
	in, drivers := operand.Input{Spec: effective.Of(spec)}, driver.Operand()
	for path, want := range map[string][]string{
		"spec.template.spec.containers[0].env[0].name":            {"spec.driver.env"},
		"spec.template.spec.containers[0].envFrom[0]":             {"spec.driver.secretEnv"},
		"spec.template.spec.containers[0].args[0]":                {"spec.driver.args"},
		"spec.template.spec.containers[0].startupProbe.httpGet":   {"spec.driver.startupProbe"},
		"spec.template.spec.containers[0].livenessProbe.httpGet":  {"spec.driver.livenessProbe"},
		"spec.template.spec.containers[0].readinessProbe.httpGet": {"spec.driver.readinessProbe"},
		"spec.template.spec.hostNetwork":                          {"spec.driver.hostNetwork"},
		"spec.template.spec.containers[0].ports[0].hostPort":      {"spec.driver.hostNetwork"},
		"spec.template.spec.imagePullSecrets[0].name": {
			"spec.driver.imagePullSecrets", "spec.global.imagePullSecrets",
		},
		"spec.template.spec.priorityClassName":                   {"spec.daemonsets.priorityClassName"},
		"spec.template.spec.nodeSelector":                        {"spec.daemonsets.nodeSelector"},
		"spec.template.metadata.annotations[a]":                  {"spec.daemonsets.annotations"},
		"spec.updateStrategy.rollingUpdate.maxUnavailable":       {"spec.daemonsets.rollingUpdate"},
		"spec.template.spec.containers[0].resources.requests[a]": {"spec.driver"},
	} {
		if got := in.FieldsOf(&drivers, path); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}

// An operand is refused for what its pods have, and for nothing else.
func TestPodsThatAreImpossible(t *testing.T) {
	root := &corev1.PodSecurityContext{RunAsUser: new(int64(-1))}
	long := []corev1.Toleration{{Key: "a", Operator: "In"}}
	for name, test := range map[string]struct {
		spec                  v1.ClusterPolicySpec
		ofExporter, ofDrivers string
	}{
		"of all operands": {
			v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{PodSecurityContext: root}},
			"spec.daemonsets.podSecurityContext.runAsUser: -1 is not an ID: it must be from 0 to 2147483647",
			"spec.daemonsets.podSecurityContext.runAsUser: -1 is not an ID: it must be from 0 to 2147483647",
		},
		"a label that no node can have": {
			v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{NodeSelector: v1.Labels{"a": "b c"}}}, "", "",
		},
		"of one": {
			v1.ClusterPolicySpec{Driver: &v1.DriverSpec{PlacementSpec: v1.PlacementSpec{Tolerations: long}}},
			"", "spec.driver.tolerations[0].operator: must be Exists, Equal, Lt or Gt",
		},
		"of the pods that an upgrade waits for": {
			v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UpgradePolicy: &v1.DriverUpgradePolicySpec{
				WaitForCompletion: &v1.WaitForCompletionSpec{PodSelector: "app in"},
			}}},
			"", "spec.driver.upgradePolicy.waitForCompletion.podSelector: is not a label selector, such as " +
				"app=training,tier notin (test): unable to parse requirement: found '' expected: '('",
		},
		"of all but one": {
			v1.ClusterPolicySpec{
				DaemonSets: &v1.DaemonSetsSpec{Tolerations: long, PriorityClassName: "a..b"},
				Driver: &v1.DriverSpec{PlacementSpec: v1.PlacementSpec{
					Tolerations: []corev1.Toleration{{Key: "a"}}, PriorityClassName: "a",
				}},
			},
			"spec.daemonsets.tolerations[0].operator: must be Exists, Equal, Lt or Gt; spec.daemonsets.priorityClassName: " +
				`"a..b" is not the name of an object: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric ` +
				"characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex " +
				`used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			"",
		},
		"of the driver, which NVIDIADriver objects declare": {
			v1.ClusterPolicySpec{Driver: &v1.DriverSpec{
				UseNvidiaDriverCRD: new(true), PlacementSpec: v1.PlacementSpec{Tolerations: long},
			}},
			"", "",
		},
	} {
		in := operand.Input{Spec: effective.Of(test.spec)}
		exporter, drivers := dcgmexporter.Operand(), driver.Operand()
		if got := in.CheckPods(&exporter).Message; got != test.ofExporter {
			t.Errorf("%s: the exporter: got  %s\nwant %s", name, got, test.ofExporter)
		}
		if got := in.CheckPods(&drivers).Message; got != test.ofDrivers {
			t.Errorf("%s: the driver: got  %s\nwant %s", name, got, test.ofDrivers)
		}
	}
}

// A node pool may have its own upgradePolicy, and is the one to correct.
func TestASelectorOfANodePoolIsRefused(t *testing.T) {
	spec := effective.Of(v1.ClusterPolicySpec{NodePools: []v1.NodePoolSpec{{
		Name: "a", NodeSelector: v1.NodePoolSelector{"a": "b"}, Driver: &v1.NodePoolDriverSpec{
			UpgradePolicy: &v1.NodePoolUpgradePolicySpec{Drain: &v1.DrainSpec{PodSelector: "tier notin"}},
		},
	}}})
	drivers := driver.Operand()
	all := operand.Input{Spec: spec}
	if got := all.CheckPods(&drivers).Message; got != "" {
		t.Errorf("the other nodes: %s", got)
	}
	own := all.ForNodePool(operand.NodePools(spec)[0])
	const want = "spec.nodePools[].driver.upgradePolicy.drain.podSelector: is not a label selector"
	if got := own.CheckPods(&drivers).Message; !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The security context of a node pool replaces the common one, whether it is right or wrong.
func TestSecurityContextOfANodePool(t *testing.T) {
	const wrong = ".podSecurityContext.runAsUser: -1 is not an ID: it must be from 0 to 2147483647"
	for name, test := range map[string]struct {
		all, own int64
		want     string
	}{
		"right": {all: -1},
		"wrong": {own: -1, want: "spec.nodePools[].driver" + wrong},
	} {
		spec := effective.Of(v1.ClusterPolicySpec{
			DaemonSets: &v1.DaemonSetsSpec{PodSecurityContext: &corev1.PodSecurityContext{RunAsUser: &test.all}},
			NodePools: []v1.NodePoolSpec{{
				Name: "a", NodeSelector: v1.NodePoolSelector{"a": "b"}, Driver: &v1.NodePoolDriverSpec{
					PodSecurityContext: &corev1.PodSecurityContext{RunAsUser: &test.own},
				},
			}},
		})
		in, drivers := (operand.Input{Spec: spec}).ForNodePool(operand.NodePools(spec)[0]), driver.Operand()
		if got := in.CheckPods(&drivers).Message; got != test.want {
			t.Errorf("%s: got  %s\nwant %s", name, got, test.want)
		}
		in.OfNVIDIADriver = true
		if got := in.CheckPods(&drivers).Message; got != "" {
			t.Errorf("%s, of an object, which was checked when it was read: %s", name, got)
		}
	}
}
