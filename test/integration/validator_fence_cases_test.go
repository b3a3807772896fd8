package integration

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// variation is a change of the test pod, and the API server's message.
type variation struct {
	change  func(*corev1.Pod)
	refusal string
}

// variations returns the changes that the validator of node own may not make to its pod.
func variations(own, other string) map[string]variation {
	cases := map[string]variation{}
	for _, more := range []map[string]variation{
		foreignMetadata(own, other), foreignPlacement(own,
			other), foreignPodSettings(), foreignSecrets(), foreignContainers(),
	} {
		maps.Copy(cases, more)
	}
	return cases
}

func foreignMetadata(own, other string) map[string]variation {
	owner := func(change func(*metav1.OwnerReference)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(&p.OwnerReferences[0]) }
	}
	const owned, labelled = "only with its own pod as the only owner, which is nvidia-operator-validator-on-",
		"only create and delete pods with the label app="
	named := func(name string) variation {
		return variation{
			func(p *corev1.Pod) { p.Name = name }, "the pod that is named after its own node: " + testPodName(own),
		}
	}
	return map[string]variation{
		"another name":         named(testPodApp),
		"a longer name":        named(testPodName(own) + "0"),
		"that of another node": named(testPodName(other)),
		"a name that is made": {
			func(p *corev1.Pod) { p.Name, p.GenerateName = "", testPodApp+"-" }, "named after its own node",
		},
		"no label":    {func(p *corev1.Pod) { p.Labels = nil }, labelled},
		"another app": {func(p *corev1.Pod) { p.Labels["app"] = "nvidia-driver-daemonset" }, labelled},
		"one label more": {
			func(p *corev1.Pod) { p.Labels["control-plane"] = "gpu-operator" },
			"may set only the label app on a pod, not control-plane",
		},
		"a finalizer": {
			func(p *corev1.Pod) { p.Finalizers = []string{"example.com/x"} }, "may not create a pod with metadata.finalizers",
		},
		"no owner":      {func(p *corev1.Pod) { p.OwnerReferences = nil }, owned},
		"another owner": {owner(func(o *metav1.OwnerReference) { o.Name = "another" }), owned},
		"a former owner": {
			owner(func(o *metav1.OwnerReference) { o.UID = "00000000-0000-4000-8000-000000000000" }),
			owned,
		},
		"an owner's owner": {
			owner(func(o *metav1.OwnerReference) { o.APIVersion, o.Kind = "apps/v1", "DaemonSet" }),
			owned,
		},
		"two owners": {func(p *corev1.Pod) {
			second := p.OwnerReferences[0]
			second.Name, second.UID = "second", "00000000-0000-4000-8000-000000000000"
			p.OwnerReferences = append(p.OwnerReferences, second)
		}, owned},
	}
}

func foreignPlacement(own, other string) map[string]variation {
	pods := []corev1.PodAffinityTerm{
		{
			TopologyKey:       "kubernetes.io/os",
			LabelSelector:     &metav1.LabelSelector{},
			NamespaceSelector: &metav1.LabelSelector{},
		},
	}
	placed := "must require " + own + " by metadata.name"
	terms := func(p *corev1.Pod) *[]corev1.NodeSelectorTerm {
		return &p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	return map[string]variation{
		"for any node":     {func(p *corev1.Pod) { p.Spec.Affinity = nil }, placed},
		"for another node": {func(p *corev1.Pod) { p.Spec.Affinity = onNode(other) }, placed},
		"for all but a node": {
			func(p *corev1.Pod) { (*terms(p))[0].MatchFields[0].Operator = corev1.NodeSelectorOpNotIn }, placed,
		},
		"for one of two": {func(p *corev1.Pod) {
			*terms(p) = append(*terms(p), corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "kubernetes.io/os", Operator: corev1.NodeSelectorOpExists}}})
		}, placed},
		"for a node by its label": {func(p *corev1.Pod) {
			*terms(p) = []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{own}}}}}
		}, placed},
		"bound to its node": {func(p *corev1.Pod) { p.Spec.NodeName = own }, "with spec.nodeName"},
		"bound to another":  {func(p *corev1.Pod) { p.Spec.NodeName = other }, "with spec.nodeName"},
		"beside others' pods": {func(p *corev1.Pod) {
			p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: pods}
		}, "with spec.affinity.podAffinity"},
		"without others' pods": {func(p *corev1.Pod) {
			p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: pods,
			}
		}, "with spec.affinity.podAntiAffinity"},
		"before others' pods": {func(p *corev1.Pod) {
			p.Spec.PriorityClassName, p.Spec.Priority, p.Spec.PreemptionPolicy = "system-node-critical", nil, nil
		}, "with a priority class that preempts"},
	}
}

func foreignPodSettings() map[string]variation {
	const account = "only with its own service account, nvidia-operator-validator, and without its token"
	return map[string]variation{
		"another account": {
			func(p *corev1.Pod) { p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount = "nvidia-driver", "" }, account,
		},
		"a token":              {func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = new(true) }, account},
		"a token by default":   {func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }, account},
		"the host's network":   {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "with spec.hostNetwork"},
		"the host's processes": {func(p *corev1.Pod) { p.Spec.HostPID = true }, "with spec.hostPID"},
		"the host's memory":    {func(p *corev1.Pod) { p.Spec.HostIPC = true }, "with spec.hostIPC"},
		"the host's settings": {func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{
				Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}},
			}
		}, "with spec.securityContext.sysctls"},
		"an init container": {
			func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{another(p)} }, "with spec.initContainers",
		},
		"a second container": {
			func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, another(p)) }, "with a second container",
		},
	}
}

// foreignSecrets are files of the host and objects of the namespace.
func foreignSecrets() map[string]variation {
	volume := func(source corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "more", VolumeSource: source}} }
	}
	secret := corev1.LocalObjectReference{Name: "any"}
	const volumes = "with spec.volumes"
	return map[string]variation{
		"a hostPath": {volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), volumes},
		"a Secret":   {volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "any"}}), volumes},
		"a projected Secret": {volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: secret}},
			}}}), volumes},
		"a Secret as a variable": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: secret, Key: "a"}}}}
		}, "whose container has env.valueFrom"},
		"a Secret as the environment": {func(p *corev1.Pod) {
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: secret}},
			}
		}, "whose container has envFrom"},
	}
}

func foreignContainers() map[string]variation {
	security := func(change func(*corev1.SecurityContext)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(p.Spec.Containers[0].SecurityContext) }
	}
	return map[string]variation{
		"privileged": {
			security(func(s *corev1.SecurityContext) { s.Privileged, s.AllowPrivilegeEscalation = new(true), nil }),
			"has securityContext.privileged, securityContext.allowPrivilegeEscalation"},
		"more privileges later": {
			security(func(s *corev1.SecurityContext) { s.AllowPrivilegeEscalation = new(true) }),
			"has securityContext.allowPrivilegeEscalation",
		},
		"more privileges later by default": {
			security(func(s *corev1.SecurityContext) { s.AllowPrivilegeEscalation = nil }),
			"has securityContext.allowPrivilegeEscalation",
		},
		"no security context": {
			func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = nil }, "has securityContext.allowPrivilegeEscalation",
		},
		"a capability": {
			security(func(s *corev1.SecurityContext) { s.Capabilities.Add = []corev1.Capability{"NET_RAW"} }),
			"has securityContext.capabilities.add",
		},
		"a port of the host": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}, "has ports.hostPort"},
	}
}

func another(p *corev1.Pod) corev1.Container {
	container := *p.Spec.Containers[0].DeepCopy()
	container.Name = "another"
	return container
}

// testPodName returns the name of the test pod of a node.
func testPodName(node string) string { return testPodApp + "-" + node }

// leftover returns the pod that a check of this node may have left, which requests this many GPUs.
func leftover(node, gpus string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: testPodName(node), Labels: map[string]string{"app": testPodApp},
		},
		Spec: corev1.PodSpec{
			Affinity: onNode(node),
			Containers: []corev1.Container{
				{Name: "main", Image: "example.com/x:1", Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus)}}},
			},
		},
	}
}

func onNode(name string) *corev1.Affinity {
	return &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}},
		}},
	}
}

// again returns the pod as it was requested.
func again(made *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: made.Namespace, Name: made.Name,
			Labels: maps.Clone(made.Labels), OwnerReferences: slices.Clone(made.OwnerReferences),
		},
		Spec: *made.Spec.DeepCopy(),
	}
}
