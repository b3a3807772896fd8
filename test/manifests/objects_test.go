package manifests

import (
	"regexp"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// roleChecks are those of kube-linter, by its names, and access-to-rights, which finds permissions that allow
// privilege escalation. A part is the resources of a rule.
var roleChecks = map[string]check[[]rbacv1.PolicyRule]{
	"access-to-create-pods": ofRules(func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Verbs, "create") && hasAny(r.Resources, podMakers)
	}),
	"access-to-rights":  ofRules(escalates),
	"access-to-secrets": ofRules(func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "secrets") }),
	"wildcard-in-rules": ofRules(func(r rbacv1.PolicyRule) bool {
		return slices.Contains(slices.Concat(r.APIGroups, r.Resources, r.Verbs, r.NonResourceURLs), "*")
	}),
}

var (
	podMakers = []string{
		"pods", "deployments", "daemonsets", "statefulsets", "replicasets", "replicationcontrollers", "jobs", "cronjobs",
	}
	rightMakers = []string{
		"pods/exec", "pods/attach", "pods/ephemeralcontainers", "nodes/proxy", "serviceaccounts/token",
		"certificatesigningrequests/approval",
	}
	writes = []string{"create", "update", "patch", "delete", "deletecollection"}
)

func hasAny(list, of []string) bool {
	return slices.ContainsFunc(of, func(s string) bool { return slices.Contains(list, s) })
}

func ofRules(weak func(rbacv1.PolicyRule) bool) check[[]rbacv1.PolicyRule] {
	return func(_ *cluster, rules []rbacv1.PolicyRule) []string {
		var found []string
		for _, rule := range rules {
			if weak(rule) {
				found = append(found, strings.Join(rule.Resources, ","))
			}
		}
		return found
	}
}

// escalates reports whether a permission allows gaining others: by roles, by another account, by a process of another
// pod, by security context constraints of OpenShift, or by removing an admission policy.
func escalates(r rbacv1.PolicyRule) bool {
	return hasAny(r.Verbs, []string{"bind", "escalate", "impersonate", "use"}) || hasAny(r.Resources, rightMakers) ||
		hasAny(r.APIGroups, []string{rbacv1.GroupName, "admissionregistration.k8s.io"}) && hasAny(r.Verbs, writes)
}

// bindingChecks are that of kube-linter, and one that all referenced names exist.
var bindingChecks = map[string]check[binding]{
	"cluster-admin-role-binding": func(_ *cluster, b binding) []string { return wholeIf(b.role.Name == "cluster-admin") },
	"dangling-role-binding": func(c *cluster, b binding) []string {
		return wholeIf(!c.known[b.role.Kind+"/"+b.role.Name] || slices.ContainsFunc(b.subjects, func(s rbacv1.Subject) bool {
			return !c.known[s.Kind+"/"+s.Name] || s.Namespace != namespace
		}))
	},
}

// serviceChecks are those of kube-linter that kube-score does not have. A part is the name of a port.
var serviceChecks = map[string]check[corev1.ServiceSpec]{
	"exposed-services": func(_ *cluster, s corev1.ServiceSpec) []string {
		return wholeIf(s.Type == corev1.ServiceTypeNodePort || s.Type == corev1.ServiceTypeLoadBalancer ||
			len(s.ExternalIPs) > 0)
	},
	"invalid-target-ports": func(c *cluster, s corev1.ServiceSpec) []string {
		var found []string
		for _, port := range s.Ports {
			if slices.ContainsFunc(c.podsOf(s.Selector), func(w workload) bool { return !serves(w, port) }) {
				found = append(found, port.Name)
			}
		}
		return found
	},
}

func serves(w workload, port corev1.ServicePort) bool {
	return slices.ContainsFunc(w.template.Spec.Containers,
		func(c corev1.Container) bool { return declares(&c, port.TargetPort) })
}

// budgetChecks are those of kube-linter.
var budgetChecks = map[string]check[policyv1.PodDisruptionBudgetSpec]{
	"pdb-max-unavailable": func(_ *cluster, b policyv1.PodDisruptionBudgetSpec) []string {
		return wholeIf(b.MaxUnavailable != nil &&
			(*b.MaxUnavailable == intstr.FromInt32(0) || *b.MaxUnavailable == intstr.FromString("0%")))
	},
	"pdb-min-available": func(_ *cluster, b policyv1.PodDisruptionBudgetSpec) []string {
		return wholeIf(b.MinAvailable != nil)
	},
	"pdb-unhealthy-pod-eviction-policy": func(_ *cluster, b policyv1.PodDisruptionBudgetSpec) []string {
		return wholeIf(b.UnhealthyPodEvictionPolicy == nil || *b.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow)
	},
}

// jobChecks are that of kube-linter.
var jobChecks = map[string]check[batchv1.JobSpec]{
	"job-ttl-seconds-after-finished": func(_ *cluster, j batchv1.JobSpec) []string {
		return wholeIf(j.TTLSecondsAfterFinished == nil)
	},
}

// objectChecks apply to any object: use-namespace and no-extensions-v1beta of kube-linter, for all kinds.
var objectChecks = map[string]check[*unstructured.Unstructured]{
	"default-namespace": func(_ *cluster, o *unstructured.Unstructured) []string {
		return wholeIf(o.GetNamespace() == "default")
	},
	"unstable-api": func(_ *cluster, o *unstructured.Unstructured) []string {
		return wholeIf(unstable.MatchString(o.GetAPIVersion()))
	},
}

// unstable are the versions of an API that a release of Kubernetes may drop.
var unstable = regexp.MustCompile(`v[0-9]+(alpha|beta)[0-9]+$`)
