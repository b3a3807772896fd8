package podrules_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/api/v1alpha1"
	"github.com/clusterpolicy/gpu-operator/internal/kube/podrules"
)

// impossible are specs of policies that no pod can follow, each followed by the beginning of the only problem.
const impossible = `
# Resources.
{"driver":{"resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}}}
  spec.driver.resources.requests[cpu]: 2 exceeds the limit of 1
{"gfd":{"resources":{"requests":{"ephemeral-storage":"2Gi"},"limits":{"ephemeral-storage":"1Gi"}}}}
  spec.gfd.resources.requests[ephemeral-storage]: 2Gi exceeds
{"dcgm":{"resources":{"requests":{"example.com/nic":"1"}}}}
  spec.dcgm.resources.requests[example.com/nic]: needs the same limit
{"dcgm":{"resources":{"requests":{"example.com/nic":"1"},"limits":{"example.com/nic":"2"}}}}
  spec.dcgm.resources.requests[example.com/nic]: 1 must equal the limit of 2
{"dcgm":{"resources":{"limits":{"example.com/nic":"1500m"}}}}
  spec.dcgm.resources.limits[example.com/nic]: 1500m is not a whole number
{"dcgm":{"resources":{"limits":{"cpu":"-1"}}}}
  spec.dcgm.resources.limits[cpu]: -1 is negative
{"dcgm":{"resources":{"limits":{"gpu":"1"}}}}
  spec.dcgm.resources.limits[gpu]: is not a resource of containers
{"dcgm":{"resources":{"limits":{"a b/c":"1"}}}}
  spec.dcgm.resources.limits[a b/c]: is not a resource of
{"dcgm":{"resources":{"limits":{"requests.example.com/a":"1"}}}}
  spec.dcgm.resources.limits[requests.example.com/a]: is not a resource
{"toolkit":{"resources":{"limits":{"hugepages-2Mi":"4Mi"}}}}
  spec.toolkit.resources: huge pages need cpu or memory
{"toolkit":{"resources":{"limits":{"hugepages-2Mi":"3Mi","cpu":"1"}}}}
  spec.toolkit.resources.limits[hugepages-2Mi]: 3Mi is not a multiple
{"toolkit":{"resources":{"limits":{"hugepages-0":"4Mi","cpu":"1"}}}}
  spec.toolkit.resources.limits[hugepages-0]: 4Mi is not a multiple
{"toolkit":{"resources":{"limits":{"hugepages-1500m":"4","cpu":"1"}}}}
  spec.toolkit.resources.limits[hugepages-1500m]: 4 is not a multiple
{"toolkit":{"resources":{"requests":{"hugepages-2Mi":"4Mi","cpu":"1"}}}}
  spec.toolkit.resources.requests[hugepages-2Mi]: needs the same limit
{"migManager":{"containerResources":[{"name":"a","requests":{"memory":"2"},"limits":{"memory":"1"}}]}}
  spec.migManager.containerResources[0].requests[memory]: 2 exceeds
{"health":{"agent":{"resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}}}}
  spec.health.agent.resources.requests[cpu]: 2 exceeds
{"nodePools":[{"name":"a"},{"name":"b","driver":{"resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}}}]}
  spec.nodePools[1].driver.resources.requests[cpu]: 2 exceeds
# Probes.
{"driver":{"startupProbe":{"successThreshold":2}}}
  spec.driver.startupProbe.successThreshold: must be 1
{"driver":{"livenessProbe":{"successThreshold":2}}}
  spec.driver.livenessProbe.successThreshold: must be 1
# Variables.
{"driver":{"manager":{"env":[{"name":"A"},{"name":"B=C"}]}}}
  spec.driver.manager.env[1].name: "B=C" is not the name of a variable
{"validator":{"cuda":{"env":[{"name":""}]}}}
  spec.validator.cuda.env[0].name: 
# Tolerations.
{"daemonsets":{"tolerations":[{"key":"a"},{"value":"b"}]}}
  spec.daemonsets.tolerations[1].operator: must be Exists
{"gfd":{"tolerations":[{"key":"a","operator":"Exists","value":"b"}]}}
  spec.gfd.tolerations[0].value: must be empty
{"gfd":{"tolerations":[{"key":"a","effect":"NoSchedule","tolerationSeconds":60}]}}
  spec.gfd.tolerations[0].effect: must be NoExecute
{"gfd":{"tolerations":[{"key":"a","tolerationSeconds":60}]}}
  spec.gfd.tolerations[0].effect: must be NoExec
{"gfd":{"tolerations":[{"key":"a..b/c"}]}}
  spec.gfd.tolerations[0].key: "a..b/c" is not a key
{"gfd":{"tolerations":[{"key":"a","value":"b c"}]}}
  spec.gfd.tolerations[0].value: "b c" is not
{"gfd":{"tolerations":[{"key":"a","operator":"In"}]}}
  spec.gfd.tolerations[0].operator: must be
{"gfd":{"tolerations":[{"key":"a","effect":"No"}]}}
  spec.gfd.tolerations[0].effect: must be NoSched
{"gfd":{"tolerations":[{"key":"a","operator":"Gt","value":"b"}]}}
  spec.gfd.tolerations[0].value: must be a whole
# Security contexts.
{"daemonsets":{"podSecurityContext":{"runAsUser":-1}}}
  spec.daemonsets.podSecurityContext.runAsUser: -1 is not
{"daemonsets":{"podSecurityContext":{"fsGroup":2147483648}}}
  spec.daemonsets.podSecurityContext.fsGroup: 2147483648 is not an ID
{"daemonsets":{"podSecurityContext":{"runAsGroup":-1}}}
  spec.daemonsets.podSecurityContext.runAsGroup: -1
{"daemonsets":{"podSecurityContext":{"supplementalGroups":[1,-1]}}}
  spec.daemonsets.podSecurityContext.supplementalGroups[1]: -1
{"daemonsets":{"podSecurityContext":{"runAsNonRoot":true,"runAsUser":0}}}
  spec.daemonsets.podSecurityContext.runAsUser: is 0, which is root
{"daemonsets":{"podSecurityContext":{"seccompProfile":{"type":"Localhost"}}}}
  spec.daemonsets.podSecurityContext.seccompProfile.localhostProfile: must be set
{"daemonsets":{"podSecurityContext":{"seccompProfile":{"type":"Localhost","localhostProfile":"../a"}}}}
  spec.daemonsets.podSecurityContext.seccompProfile.localhostProfile: must be a relative path
{"daemonsets":{"podSecurityContext":{"seccompProfile":{"type":"Unconfined","localhostProfile":"a"}}}}
  spec.daemonsets.podSecurityContext.seccompProfile.localhostProfile: must not be set
{"daemonsets":{"podSecurityContext":{"seccompProfile":{"type":"None"}}}}
  spec.daemonsets.podSecurityContext.seccompProfile.type: must be
{"daemonsets":{"podSecurityContext":{"appArmorProfile":{"type":"Localhost"}}}}
  spec.daemonsets.podSecurityContext.appArmorProfile.localhostProfile: must be set
{"daemonsets":{"podSecurityContext":{"appArmorProfile":{"type":"Localhost","localhostProfile":" a"}}}}
  spec.daemonsets.podSecurityContext.appArmorProfile.localhostProfile: must be the name
{"daemonsets":{"podSecurityContext":{"fsGroupChangePolicy":"No"}}}
  spec.daemonsets.podSecurityContext.fsGroupCh
{"daemonsets":{"podSecurityContext":{"supplementalGroupsPolicy":"No"}}}
  spec.daemonsets.podSecurityContext.supplem
{"daemonsets":{"podSecurityContext":{"seLinuxChangePolicy":"No"}}}
  spec.daemonsets.podSecurityContext.seLinux
{"daemonsets":{"podSecurityContext":{"sysctls":[{"name":"A"}]}}}
  spec.daemonsets.podSecurityContext.sysctls[0]
{"daemonsets":{"podSecurityContext":{"sysctls":[{"name":"a.b"},{"name":"a.b"}]}}}
  spec.daemonsets.podSecurityContext.sysctls[1].name: a.b occurs several times
{"daemonsets":{"podSecurityContext":{"windowsOptions":{"hostProcess":true}}}}
  spec.daemonsets.podSecurityContext.windowsOptions.hostProcess: is for Windows
{"daemonsets":{"podSecurityContext":{"windowsOptions":{"gmsaCredentialSpecName":"A"}}}}
  spec.daemonsets.podSecurityContext.windowsOptions.gmsaCredentialSpecName: 
{"daemonsets":{"podSecurityContext":{"windowsOptions":{"gmsaCredentialSpec":""}}}}
  spec.daemonsets.podSecurityContext.windowsOptions.gmsaCredentialSpec: 
{"daemonsets":{"podSecurityContext":{"windowsOptions":{"runAsUserName":""}}}}
  spec.daemonsets.podSecurityContext.windowsOptions.runAsUserName: 
{"nodePools":[{"name":"a","driver":{"podSecurityContext":{"runAsUser":-1}}}]}
  spec.nodePools[0].driver.podSecurityContext.runAsUser: -1 is not
# Metadata and names.
{"daemonsets":{"labels":{"a..b/c":"d"}}}
  spec.daemonsets.labels[a..b/c]: "a..b/c" is not a key
{"daemonsets":{"labels":{"a":"-"}}}
  spec.daemonsets.labels[a]: "-" is not the value
{"dcgm":{"nodeSelector":{"a-./b":"c"}}}
  spec.dcgm.nodeSelector[a-./b]: "a-./b" is not a key
{"nodePools":[{"name":"a","nodeSelector":{"-":"c"}}]}
  spec.nodePools[0].nodeSelector[-]: "-" is not a key
{"daemonsets":{"annotations":{"a b":"c"}}}
  spec.daemonsets.annotations[a b]: "a b" is not a key
{"daemonsets":{"annotations":{"kubernetes.io/config.mirror":"c"}}}
  spec.daemonsets.annotations[kubernetes.io/config.mirror]: is for pods that the kubelet starts
{"daemonsets":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"007"}}}
  spec.daemonsets.annotations[controller.kubernetes.io/pod-deletion-cost]: must be a whole number
{"daemonsets":{"tolerations":[{"key":"a","operator":"Lt","value":"007"}]}}
  spec.daemonsets.tolerations[0].value: must be a whole number
{"daemonsets":{"annotations":{"scheduler.alpha.kubernetes.io/tolerations":"[{}]"}}}
  spec.daemonsets.annotations[scheduler.alpha.kubernetes.io/tolerations]: [0].operator: must be Exists
{"daemonsets":{"annotations":{"scheduler.alpha.kubernetes.io/tolerations":"{"}}}
  spec.daemonsets.annotations[scheduler.alpha.kubernetes.io/tolerations]: must be tolerations in JSON
{"daemonsets":{"annotations":{"seccomp.security.alpha.kubernetes.io/pod":"localhost/../a"}}}
  spec.daemonsets.annotations[seccomp.security.alpha.kubernetes.io/pod]: must be runtime/default
{"daemonsets":{"annotations":{"container.apparmor.security.beta.kubernetes.io/a":"b"}}}
  spec.daemonsets.annotations[container.apparmor.security.beta.kubernetes.io/a]: must be runtime/default
{"daemonsets":{"priorityClassName":"a..b"}}
  spec.daemonsets.priorityClassName: "a..b" is not the name of an object
{"driver":{"secretEnv":"a-.b"}}
  spec.driver.secretEnv: "a-.b" is not the name of an object
{"nodeStartup":{"taints":[{"key":"a-./b","effect":"NoSchedule"}]}}
  spec.nodeStartup.taints[0].key: "a-./b" is not a key
# Selectors of pods.
{"driver":{"upgradePolicy":{"waitForCompletion":{"podSelector":"app in"}}}}
  spec.driver.upgradePolicy.waitForCompletion.podSelector: is not a label selector
{"driver":{"upgradePolicy":{"waitForCompletion":{"podSelector":"a==b==c"}}}}
  spec.driver.upgradePolicy.waitForCompletion.podSelector: is not a label selector
{"driver":{"upgradePolicy":{"waitForCompletion":{"podSelector":"app=(x)"}}}}
  spec.driver.upgradePolicy.waitForCompletion.podSelector: is not a label selector
{"driver":{"upgradePolicy":{"waitForCompletion":{"podSelector":"app,"}}}}
  spec.driver.upgradePolicy.waitForCompletion.podSelector: is not a label selector
{"driver":{"upgradePolicy":{"waitForCompletion":{"podSelector":","}}}}
  spec.driver.upgradePolicy.waitForCompletion.podSelector: is not a label selector
{"driver":{"upgradePolicy":{"drain":{"podSelector":"tier notin"}}}}
  spec.driver.upgradePolicy.drain.podSelector: is not a label selector
{"nodePools":[{"name":"a","driver":{"upgradePolicy":{"drain":{"podSelector":"tier notin"}}}}]}
  spec.nodePools[0].driver.upgradePolicy.drain.podSelector: is not a label selector
`

func TestWhatNoPodCanHave(t *testing.T) {
	spec, cases := "", 0
	for line := range strings.Lines(impossible) {
		line = strings.TrimSuffix(line, "\n")
		want, isProblem := strings.CutPrefix(line, "  ")
		if !isProblem {
			spec = line
			continue
		}
		cases++
		found := podrules.Check(specOf(t, spec), "spec")
		if len(found) != 1 || !strings.HasPrefix(found[0].String(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", spec, found, want)
		}
	}
	t.Logf("impossible values that are found with their fields: %d", cases)
}

func TestWhatPodsCanHave(t *testing.T) {
	for _, spec := range []string{
		`{}`,
		`{"driver":{"resources":{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"1","memory":"1024Mi"}}}}`,
		`{"driver":{"resources":{"requests":{"cpu":"500m"},"limits":{"memory":"1Gi"}}}}`,
		`{"dcgm":{"resources":{"limits":{"example.com/nic":"2"}}}}`,
		`{"dcgm":{"resources":{"requests":{"example.com/nic":"2000m"},"limits":{"example.com/nic":"2"}}}}`,
		`{"dcgm":{"resources":{"limits":{"hugepages-2Mi":"4Mi"},"requests":{"memory":"1Gi"}}}}`,
		`{"driver":{"startupProbe":{"successThreshold":1},"readinessProbe":{"successThreshold":3}}}`,
		`{"driver":{"env":[{"name":"A.b-c 1","value":""},{"name":"A.b-c 1","value":"2"}]}}`,
		`{"daemonsets":{"tolerations":[{"operator":"Exists"},{"key":"example.com/A","value":"b_c"}]}}`,
		`{"daemonsets":{"tolerations":[{"key":"a","effect":"NoExecute","tolerationSeconds":-1}]}}`,
		`{"daemonsets":{"tolerations":[{"key":"a","operator":"Lt","value":"-5"}]}}`,
		`{"daemonsets":{"podSecurityContext":{"runAsUser":0,"fsGroup":2147483647,"runAsNonRoot":false}}}`,
		`{"daemonsets":{"podSecurityContext":{"seccompProfile":{"type":"Localhost","localhostProfile":"a/b.json"}}}}`,
		`{"daemonsets":{"podSecurityContext":{"sysctls":[{"name":"net.core.somaxconn","value":"1"},{"name":"a/b.c"}]}}}`,
		`{"daemonsets":{"podSecurityContext":{"windowsOptions":{"runAsUserName":"NT AUTHORITY"}}}}`,
		`{"daemonsets":{"podSecurityContext":{"windowsOptions":{"gmsaCredentialSpecName":"a.b","gmsaCredentialSpec":"c"}}}}`,
		`{"daemonsets":{"podSecurityContext":{"appArmorProfile":{"type":"Localhost","localhostProfile":"a b"}}}}`,
		`{"daemonsets":{"annotations":{"Example.com/A":"b","controller.kubernetes.io/pod-deletion-cost":"-07"}}}`,
		`{"daemonsets":{"annotations":{"container.apparmor.security.beta.kubernetes.io/a":"localhost/b"}}}`,
		`{"daemonsets":{"annotations":{"container.apparmor.security.beta.kubernetes.io/a":"runtime/default"}}}`,
		`{"daemonsets":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"0"}}}`,
		`{"daemonsets":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"50"}}}`,
		`{"daemonsets":{"podSecurityContext":{"seLinuxChangePolicy":"Recursive"}}}`,
		`{"daemonsets":{"podSecurityContext":{"seLinuxChangePolicy":"MountOption"}}}`,
		`{"daemonsets":{"podSecurityContext":{"supplementalGroupsPolicy":"Merge"}}}`,
		`{"daemonsets":{"podSecurityContext":{"supplementalGroupsPolicy":"Strict"}}}`,
		`{"daemonsets":{"priorityClassName":"a.b-c"}}`,
		`{"driver":{"upgradePolicy":{"waitForCompletion":{"podSelector":""},"drain":{"podSelector":" a = b , c>5"}}}}`,
		`{"driver":{"upgradePolicy":{"drain":{"podSelector":"a.b/c in (d, e),!f,g,h notin (i),j==k,l!=m"}}}}`,
	} {
		if found := podrules.Check(specOf(t, spec), "spec"); len(found) > 0 {
			t.Errorf("%s: %v", spec, found)
		}
	}
}

// Texts of a pod are no longer than Kubernetes takes them.
func TestTheLengthOfTextsIsLimited(t *testing.T) {
	context := func(change func(context *corev1.PodSecurityContext, text string)) func(string) v1.ClusterPolicySpec {
		return func(text string) v1.ClusterPolicySpec {
			context := &corev1.PodSecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{}}
			change(context, text)
			return v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{PodSecurityContext: context}}
		}
	}
	for field, test := range map[string]struct {
		longest int
		spec    func(text string) v1.ClusterPolicySpec
	}{
		".appArmorProfile.localhostProfile": {4095, context(func(context *corev1.PodSecurityContext, text string) {
			context.AppArmorProfile = &corev1.AppArmorProfile{
				Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &text,
			}
		})},
		".sysctls[0].name": {253, context(func(context *corev1.PodSecurityContext, text string) {
			context.Sysctls = []corev1.Sysctl{{Name: text}}
		})},
		".windowsOptions.gmsaCredentialSpecName": {253, context(func(context *corev1.PodSecurityContext, text string) {
			context.WindowsOptions.GMSACredentialSpecName = &text
		})},
		".windowsOptions.gmsaCredentialSpec": {64 << 10, context(func(context *corev1.PodSecurityContext, text string) {
			context.WindowsOptions.GMSACredentialSpec = &text
		})},
		".windowsOptions.runAsUserName": {104, context(func(context *corev1.PodSecurityContext, text string) {
			context.WindowsOptions.RunAsUserName = &text
		})},
	} {
		text := strings.Repeat("a", test.longest)
		if found := podrules.Check(test.spec(text), "spec"); len(found) > 0 {
			t.Errorf("%s with %d bytes: %.300v", field, test.longest, found)
		}
		found := podrules.Check(test.spec(text+"a"), "spec")
		if len(found) != 1 || found[0].Field+found[0].Below != "spec.daemonsets.podSecurityContext"+field {
			t.Errorf("%s with %d bytes: %.300v", field, test.longest+1, found)
		}
	}
}

func TestTheSizeOfAnnotationsIsLimited(t *testing.T) {
	text := v1.AnnotationValue(strings.Repeat("a", 127<<10))
	spec := v1.ClusterPolicySpec{DaemonSets: &v1.DaemonSetsSpec{Annotations: v1.Annotations{"a": text, "b": text}}}
	if found := podrules.Check(spec, "spec"); len(found) != 1 || found[0].Field != "spec.daemonsets.annotations" {
		t.Errorf("254 KiB: %v", found)
	}
	delete(spec.DaemonSets.Annotations, "b")
	if found := podrules.Check(spec, "spec"); len(found) > 0 {
		t.Errorf("127 KiB: %v", found)
	}
}

func TestNVIDIADriversAreChecked(t *testing.T) {
	spec := v1alpha1.NVIDIADriverSpec{
		PriorityClassName: "a..b", StartupProbe: &v1.ProbeSpec{SuccessThreshold: 2},
		UpgradePolicy: &v1.DriverUpgradePolicySpec{Drain: &v1.DrainSpec{PodSelector: "tier notin"}},
	}
	var got []string
	for _, problem := range podrules.Check(&spec, "spec") {
		got = append(got, problem.Field+problem.Below)
	}
	want := "spec.startupProbe.successThreshold spec.upgradePolicy.drain.podSelector spec.priorityClassName"
	if strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func specOf(t *testing.T, text string) v1.ClusterPolicySpec {
	t.Helper()
	spec := v1.ClusterPolicySpec{}
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return spec
}
