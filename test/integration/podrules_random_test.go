package integration

import (
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// The alphabets have values that Kubernetes accepts, each kind that it refuses, and what lies between.
var (
	someKeys = []string{
		"a", "team", "example.com/team", "Example.com/Team", "a..b/c", "a.-b/c", "-a", "a/b/c", "", "a b", "a_b.c-D", "/a",
		"a/",
	}
	someValues    = []string{"", "a", "A_b.c-1", "-a", "a b", "5", "-5", "05", "+5"}
	someNames     = []string{"", "a", "a.b-c", "a..b", "A", "system-node-critical"}
	someResources = []corev1.ResourceName{
		"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi", "hugepages-x", "example.com/nic", "gpu",
		"pods", "requests.example.com/a", "kubernetes.io/own", "a.kubernetes.io/own", "storage", "a b",
	}
	someQuantities = []string{
		"0", "1", "2", "500m", "1500m", "4Mi", "3Mi", "1Gi", "0.0001", "-1", "1e3", "2Gi", "1000m", "9999999999999999999",
	}
	someVariables   = []string{"A", "a.b-c", "A B", "", "A=B", "1", "\n"}
	someAnnotations = []string{
		"example.com/note", "kubernetes.io/config.mirror", "controller.kubernetes.io/pod-deletion-cost",
		"seccomp.security.alpha.kubernetes.io/pod", "scheduler.alpha.kubernetes.io/tolerations",
		"container.seccomp.security.alpha.kubernetes.io/a", "container.apparmor.security.beta.kubernetes.io/a",
	}
	someAnnotationValues = []string{
		"", "a", "5", "-5", "-05", "05", "+5", "99999999999", "runtime/default", "docker/default", "unconfined",
		"localhost/a", "localhost//a", "localhost/../a", "[]", "[{}]", `[{"operator":"Exists"}]`, "{", "null",
	}
	somePaths        = []string{"", "a", "a/b", "/a", "../a", "a/..", " a", "a "}
	someProfileTypes = []string{"", "Localhost", "RuntimeDefault", "Unconfined", "Other"}
	someSysctls      = []string{"", "net.core.somaxconn", "kernel.shm_rmid_forced", "a/b.c", "A", "a..b", "a.b", "-a"}
	someIDs          = []int64{0, 1, 1000, 2147483647, 2147483648, -1}
)

func one[T any](dice *rand.Rand, of []T) T { return of[dice.IntN(len(of))] }

// maybe returns a pointer to one of the values, or nil.
func maybe[T any](dice *rand.Rand, of ...T) *T {
	if dice.IntN(3) > 0 {
		return nil
	}
	return new(one(dice, of))
}

// randomParts returns one to three random parts: most pods with more are refused.
func randomParts(dice *rand.Rand) podParts {
	parts := podParts{Probes: &v1.DriverSpec{}}
	for range 1 + dice.IntN(3) {
		switch dice.IntN(8) {
		case 0:
			for range 1 + dice.IntN(2) {
				parts.Tolerations = append(parts.Tolerations, randomToleration(dice))
			}
		case 1:
			parts.PodSecurityContext = randomContext(dice)
		case 2, 3:
			parts.Container.Resources = &v1.ResourceRequirements{
				Limits: randomResources(dice), Requests: randomResources(dice),
			}
		case 4:
			parts.Labels = v1.Labels{one(dice, someKeys): v1.LabelValue(one(dice, someValues))}
			parts.NodeSelector = v1.Labels{one(dice, someKeys): v1.LabelValue(one(dice, someValues))}
		case 5:
			parts.Annotations = v1.Annotations{
				one(dice, someKeys): "a", one(dice, someAnnotations): v1.AnnotationValue(one(dice, someAnnotationValues)),
			}
		case 6:
			parts.Container.Env = []v1.EnvVar{{Name: one(dice, someVariables), Value: one(dice, someValues)}}
			parts.PriorityClassName = one(dice, someNames)
		case 7:
			parts.Probes.StartupProbe = &v1.ProbeSpec{SuccessThreshold: int32(dice.IntN(3))}
			parts.Probes.ReadinessProbe = &v1.ProbeSpec{SuccessThreshold: int32(dice.IntN(3))}
		}
	}
	return parts
}

func randomToleration(dice *rand.Rand) corev1.Toleration {
	return corev1.Toleration{
		Key:   one(dice, someKeys),
		Value: one(dice, someValues),
		Operator: one(dice, []corev1.TolerationOperator{
			"", corev1.TolerationOpExists, corev1.TolerationOpEqual, "In",
		}),
		Effect: one(dice, []corev1.TaintEffect{
			"", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule, "Never",
		}),
		TolerationSeconds: maybe(dice, int64(0), 60, -1),
	}
}

func randomResources(dice *rand.Rand) corev1.ResourceList {
	list := corev1.ResourceList{}
	for range dice.IntN(3) {
		list[one(dice, someResources)] = resource.MustParse(one(dice, someQuantities))
	}
	return list
}

func randomContext(dice *rand.Rand) *corev1.PodSecurityContext {
	context := &corev1.PodSecurityContext{
		RunAsUser: maybe(dice, someIDs...), RunAsGroup: maybe(dice, someIDs...), FSGroup: maybe(dice, someIDs...),
		RunAsNonRoot:             maybe(dice, true, false),
		FSGroupChangePolicy:      maybe(dice, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch, "", "Never"),
		SupplementalGroupsPolicy: maybe(dice, corev1.SupplementalGroupsPolicyMerge, "Never"),
		SELinuxChangePolicy:      maybe(dice, corev1.SELinuxChangePolicyRecursive, "Never"),
	}
	switch dice.IntN(6) {
	case 0:
		context.SeccompProfile = &corev1.SeccompProfile{
			Type: corev1.SeccompProfileType(one(dice, someProfileTypes)), LocalhostProfile: maybe(dice, somePaths...),
		}
	case 1:
		context.AppArmorProfile = &corev1.AppArmorProfile{
			Type: corev1.AppArmorProfileType(one(dice, someProfileTypes)), LocalhostProfile: maybe(dice, somePaths...),
		}
	case 2:
		context.Sysctls = []corev1.Sysctl{{Name: one(dice, someSysctls)}, {Name: one(dice, someSysctls)}}
	case 3:
		context.SupplementalGroups = []int64{one(dice, someIDs), one(dice, someIDs)}
	case 4:
		context.WindowsOptions = &corev1.WindowsSecurityContextOptions{
			HostProcess: maybe(dice, true, false), GMSACredentialSpecName: maybe(dice, someNames...),
			GMSACredentialSpec: maybe(dice, "", "a"), RunAsUserName: maybe(dice, "", "a", `a\b`, "a@b", "NT AUTHORITY"),
		}
	}
	return context
}
