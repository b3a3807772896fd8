package manifests

import (
	"maps"
	"os"
	"slices"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterpolicy/gpu-operator/test/packaged"
)

// weakPods and weakObjects have what each check of this package must find: pod specs, and whole objects.
var weakPods = map[string][]string{
	"added-capabilities":         {`{containers: [{name: a, securityContext: {capabilities: {add: [SYS_ADMIN]}}}]}`},
	"container-runtime-socket":   {`{volumes: [{name: a, hostPath: {path: /run/containerd/containerd.sock}}]}`},
	"default-service-account":    {`{}`, `{serviceAccountName: default}`},
	"deprecated-service-account": {`{serviceAccount: sound}`},
	"drop-net-raw-capability": {
		`{containers: [{name: a}]}`, `{initContainers: [{name: a, securityContext: {capabilities: {drop: [CHOWN]}}}]}`,
	},
	"env-var-secret": {`{containers: [{name: a, env: [{name: ADMIN_PASSWORD, value: x}]}]}`},
	"host-ipc":       {`{hostIPC: true}`},
	"host-network":   {`{hostNetwork: true}`},
	"host-pid":       {`{hostPID: true}`},
	"host-port":      {`{containers: [{name: a, ports: [{containerPort: 8080, hostPort: 8080}]}]}`},
	"lost-last-output": {
		`{containers: [{name: a}]}`, `{initContainers: [{name: a, terminationMessagePolicy: File}]}`,
	},
	"non-existent-service-account": {`{serviceAccountName: nobody}`},
	"privilege-escalation": {
		`{containers: [{name: a}]}`, `{containers: [{name: a, securityContext: {allowPrivilegeEscalation: true}}]}`,
	},
	"privileged-ports": {`{containers: [{name: a, ports: [{containerPort: 443}]}]}`},
	"probe-port": {
		`{containers: [{name: a, livenessProbe: {httpGet: {port: http}}}]}`,
		`{containers: [{name: a, ports: [{name: http, containerPort: 8080}], startupProbe: {tcpSocket: {port: 8081}}}]}`,
	},
	"read-secret-from-env-var": {
		`{containers: [{name: a, envFrom: [{secretRef: {name: b}}]}]}`,
		`{containers: [{name: a, env: [{name: A, valueFrom: {secretKeyRef: {name: b, key: c}}}]}]}`,
	},
	"run-as-non-root": {
		`{containers: [{name: a}]}`, `{securityContext: {runAsUser: 0}, containers: [{name: a}]}`,
		`{securityContext: {runAsUser: 1}, containers: [{name: a, securityContext: {runAsUser: 0}}]}`,
		`{securityContext: {runAsNonRoot: true}, containers: [{name: a, securityContext: {runAsNonRoot: false}}]}`,
	},
	"sensitive-host-mounts": {
		`{volumes: [{name: a, hostPath: {path: /}}]}`, `{volumes: [{name: a, hostPath: {path: /etc/kubernetes}}]}`,
	},
	"ssh-port":          {`{containers: [{name: a, ports: [{containerPort: 22}]}]}`},
	"unsafe-proc-mount": {`{containers: [{name: a, securityContext: {procMount: Unmasked}}]}`},
	"unsafe-sysctls":    {`{securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]}}`},
	"unset-seccomp-profile": {
		`{initContainers: [{name: a}]}`, `{securityContext: {seccompProfile: {type: Unconfined}}, containers: [{name: a}]}`,
	},
	"untagged-image": {`{containers: [{name: a, image: "registry.local:5000/a"}]}`},
	"writable-host-mount": {
		`{volumes: [{name: a, hostPath: {path: /var/a}}], containers: [{name: b, volumeMounts: [{name: a, mountPath: /a}]}]}`,
	},
}

var weakObjects = map[string][]string{
	"access-to-create-pods": {
		`{kind: Role, metadata: {name: a}, rules: [{apiGroups: [apps], resources: [deployments], verbs: [create]}]}`,
	},
	"access-to-rights": {
		`{kind: Role, metadata: {name: a}, rules: [{apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: ` +
			`[patch]}]}`,
		`{kind: ClusterRole, metadata: {name: a}, rules: [{apiGroups: [""], resources: [users], verbs: [impersonate]}]}`,
		`{kind: ClusterRole, metadata: {name: a}, rules: [{apiGroups: [""], resources: [pods/exec], verbs: [get]}]}`,
	},
	"access-to-secrets": {
		`{kind: ClusterRole, metadata: {name: a}, rules: [{apiGroups: [""], resources: [secrets], verbs: [list]}]}`,
	},
	"cluster-admin-role-binding": {
		`{kind: ClusterRoleBinding, metadata: {name: a}, roleRef: {kind: ClusterRole, name: cluster-admin}}`,
	},
	"dangling-role-binding": {
		`{kind: RoleBinding, metadata: {name: a}, roleRef: {kind: Role, name: sound}, subjects: [{kind: ServiceAccount, ` +
			`name: sound, namespace: other}]}`,
	},
	"default-namespace": {`{kind: ConfigMap, metadata: {name: a, namespace: default}}`},
	"exposed-services": {
		`{kind: Service, metadata: {name: a}, spec: {type: NodePort}}`,
		`{kind: Service, metadata: {name: a}, spec: {externalIPs: [192.0.2.1]}}`,
	},
	"invalid-target-ports": {
		`{kind: Service, metadata: {name: a}, spec: {selector: {app: sound}, ports: [{name: b, port: 80, targetPort: 81}]}}`,
	},
	"job-ttl-seconds-after-finished": {`{kind: Job, metadata: {name: a}}`},
	"mismatching-selector": {
		`{kind: DaemonSet, metadata: {name: a}, spec: {selector: {matchLabels: {app: a}}}}`,
	},
	"pdb-max-unavailable": {
		`{kind: PodDisruptionBudget, metadata: {name: a}, spec: {maxUnavailable: 0}}`,
		`{kind: PodDisruptionBudget, metadata: {name: a}, spec: {maxUnavailable: 0%}}`,
	},
	"pdb-min-available":                 {`{kind: PodDisruptionBudget, metadata: {name: a}, spec: {minAvailable: 1}}`},
	"pdb-unhealthy-pod-eviction-policy": {`{kind: PodDisruptionBudget, metadata: {name: a}}`},
	"unstable-api":                      {`{apiVersion: policy/v1beta1, kind: ConfigMap, metadata: {name: a}}`},
	"wildcard-in-rules": {
		`{kind: ClusterRole, metadata: {name: a}, rules: [{apiGroups: ["*"], resources: [pods], verbs: [get]}]}`,
	},
}

// TestChecksFindWhatIsWeak: each check of this package finds its weakness, and nothing in sound objects.
func TestChecksFindWhatIsWeak(t *testing.T) {
	g := NewWithT(t)
	data, err := os.ReadFile("testdata/sound.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	sound, err := packaged.Decode(string(data))
	g.Expect(err).NotTo(HaveOccurred())
	v, err := byOwnChecks(sound)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(v.found).To(BeEmpty())

	weak := maps.Clone(weakObjects)
	for name, specs := range weakPods {
		for _, spec := range specs {
			weak[name] = append(weak[name], "{kind: Pod, metadata: {name: weak}, spec: "+spec+"}")
		}
	}
	g.Expect(slices.Sorted(maps.Keys(weak))).To(Equal(slices.Sorted(maps.Keys(v.judged))),
		"each check has an object that it finds")
	for name, texts := range weak {
		for _, text := range texts {
			object, err := packaged.Decode(text)
			g.Expect(err).NotTo(HaveOccurred(), text)
			v, err := byOwnChecks(slices.Concat(sound, object))
			g.Expect(err).NotTo(HaveOccurred(), text)
			g.Expect(v.of(name)).To(HaveLen(1), "%s must find %s", name, text)
		}
	}
}

// TestKubeScoreFindsWhatIsWeak: its optional checks are enabled, and no annotation disables one.
func TestKubeScoreFindsWhatIsWeak(t *testing.T) {
	g := NewWithT(t)
	pod,
		err := packaged.Decode(`{apiVersion: v1, kind: Pod, metadata: {name: weak, annotations: {kube-score/ignore: container-security-context-privileged}},
  spec: {containers: [{name: a, image: "a:latest", securityContext: {privileged: true}}]}}`)
	g.Expect(err).NotTo(HaveOccurred())
	v := byKubeScore(t, pod)
	for _, check := range []string{
		"container-security-context-privileged", "container-image-tag", "container-seccomp-profile",
	} {
		g.Expect(v.of(check)).To(Equal([]finding{{check, "Pod/weak", "a"}}))
	}
}

// TestEachFindingHasExactlyOneReason: the table is compared in both directions.
func TestEachFindingHasExactlyOneReason(t *testing.T) {
	v := newVerdict()
	v.found[finding{"privileged", "DaemonSet/driver-a", "ctr"}] = true
	v.found[finding{"root", "DaemonSet/driver-a", "ctr"}] = true
	privileged := reason{Checks: []string{"privileged"}, Of: []string{"DaemonSet/driver-*/ctr"}, Why: "modules"}
	root := reason{Checks: []string{"root"}, Of: []string{"*"}, With: "privileged", Why: "devices"}
	const unmended = "fix reasons.yaml"
	tests := map[string]struct {
		reasons []reason
		want    []string
	}{
		"all have one": {reasons: []reason{privileged, root}},
		"one has none": {
			[]reason{privileged},
			[]string{"root of DaemonSet/driver-a/ctr has 0 reasons: fix the manifest, or " + unmended + " []"},
		},
		"one has two": {[]reason{privileged, root, root}, []string{
			"root of DaemonSet/driver-a/ctr has 2 reasons: fix the manifest, or " + unmended + ` ["devices" "devices"]`,
		}},
		"a pattern has no finding": {
			[]reason{privileged, root, {Checks: []string{"root"}, Of: []string{"DaemonSet/driver"}}},
			[]string{`root has no finding that matches "DaemonSet/driver": remove it from reasons.yaml`},
		},
		"one without the other": {
			[]reason{privileged, root, {Checks: []string{"root"}, Of: []string{"*"}, With: "host-pid"}},
			[]string{`root has no finding that matches "*": remove it from reasons.yaml`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			unexcused, needless := compare(v, test.reasons)
			NewWithT(t).Expect(slices.Concat(unexcused, needless)).To(Equal(test.want))
		})
	}
}
