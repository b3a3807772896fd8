package contract

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Scopes of a permission.
const (
	inCluster   = "cluster"
	inNamespace = "namespace"
)

// grant is a permission of an account.
type grant struct {
	where, resource string
	// verbs are separated by spaces.
	verbs string
	// who uses them: a program of NVIDIA, or this project's gpu-node; what for, and the source of that fact.
	who, what, source string
}

const (
	configManager = "gpu-node configure"
	driverManager = "NVIDIA's k8s-driver-manager"
	migManager    = "NVIDIA's nvidia-mig-manager"
	dcgmExporter  = "NVIDIA's dcgm-exporter"
	gfd           = "NVIDIA's gpu-feature-discovery"
)

// grants are all permissions of the operands, by account. An account without permissions does not use the API, and
// gets no token.
var grants = map[string][]grant{
	"nvidia-container-toolkit": nil,
	"nvidia-dcgm":              nil,
	"nvidia-dcgm-exporter": {
		{
			inCluster, "pods", "get list watch", dcgmExporter,
			"labels and UID of the pod that holds a GPU, with enablePodLabels or enablePodUID", "operands 1.7, 5",
		},
		{
			inNamespace, "configmaps", "get list", dcgmExporter, "the metrics to collect, with DCGM_EXPORTER_CONFIGMAP_DATA",
			"operands 1.7, 5",
		},
	},
	"nvidia-device-plugin": {
		{
			inCluster, "nodes", "get list watch", configManager, "the label nvidia.com/device-plugin.config of its node",
			"operands 1.3, 3.2",
		},
	},
	"nvidia-driver": {
		{inCluster, "nodes", "get", driverManager, "its node as it is", "operands 7.3"},
		{
			inCluster, "nodes", "patch", driverManager,
			"pauses other operands by their deploy labels, and restores them", "operands 7.3",
		},
		{
			inCluster, "pods", "get list watch", driverManager, "the pods on its node that use GPUs, until they are gone",
			"operands 1.1, 7.3",
		},
		{
			inCluster, "resource.k8s.io/resourceclaims", "get list", driverManager, "pods that hold GPUs through claims",
			"operands 1.1, 7.3",
		},
	},
	"nvidia-gpu-feature-discovery": {
		{
			inCluster, "nodes", "get list watch", configManager, "the label nvidia.com/device-plugin.config of its node",
			"operands 1.5, 3.2",
		},
		{
			inNamespace, "nfd.k8s-sigs.io/nodefeatures", "create get list update watch", gfd,
			"the labels of its node, with nodeDiscovery.mode nfd", "operands 1.5",
		},
		{inNamespace, "pods", "get", gfd, "its own pod, the owner of these labels", "operands 1.5"},
	},
	"nvidia-mig-manager": {
		{
			inCluster, "nodes", "get list watch", migManager, "the layout that the label of its node requests",
			"operands 1.8, 4.4",
		},
		{
			inCluster, "nodes", "patch update", migManager,
			"pauses clients of the GPUs by their deploy labels, and reports the state of the layout", "operands 1.8, 4.4",
		},
		{inCluster, "pods", "list", migManager, "the pods on its node that use GPUs", "operands 1.8"},
		{inNamespace, "pods", "get list watch", migManager, "waits until the paused pods are gone", "operands 1.8, 4.4"},
		{
			inNamespace, "pods", "delete", migManager, "the validator's pod, so that it proves the new layout",
			"operands 1.8, 4.4",
		},
		{
			inNamespace, "configmaps", "create get list patch update", migManager,
			"the layouts that its GPUs support, in NODE-mig-config", "operands 1.8, 4",
		},
	},
	"nvidia-gpu-health": {
		{inCluster, "nodes", "get", "gpu-node health", "the faults that it has reported before", "DESIGN"},
		{inCluster, "nodes", "patch", "gpu-node health", "reports the faults of the GPUs of its node", "DESIGN"},
		{inCluster, "nodes", "watch", "gpu-node health", "the labels that pause its sessions with NVML", "DESIGN"},
	},
	"nvidia-node-discovery": {
		{inCluster, "nodes", "get", "gpu-node discover", "the labels of its node as they are", "DESIGN"},
		{inCluster, "nodes", "patch", "gpu-node discover", "labels its node where they differ", "DESIGN"},
	},
	"nvidia-node-status-exporter": {
		{inCluster, "nodes", "get", "gpu-node export", "the GPUs in the capacity of its node", "operands 1.10, 2.4"},
	},
	"nvidia-operator-validator": {
		{inCluster, "nodes", "get", "gpu-node validate plugin", "whether its node has GPUs to allocate", "operands 1.9, 2.2"},
		{inCluster, "nodes", "watch", "gpu-node validate plugin", "waits until it has", "operands 1.9, 2.2"},
		{
			inNamespace, "pods", "create", "gpu-node validate plugin", "a pod that computes on a GPU, with WITH_WORKLOAD",
			"operands 1.9, 2.2",
		},
		{inNamespace, "pods", "get watch", "gpu-node validate plugin", "how that pod fares", "operands 1.9, 2.2"},
		{
			inNamespace, "pods", "delete", "gpu-node validate plugin", "that pod, and one left from an earlier attempt",
			"operands 1.9, 2.2",
		},
	},
}

// Each operand has exactly the permissions that are known to be used.
func TestOperandsHaveThePermissionsTheyUse(t *testing.T) {
	found := shipped(t)
	if diff := cmp.Diff(withRights(used(t)), withRights(found.granted(t))); diff != "" {
		t.Errorf("rights of the operands, -used +granted by config/rbac/operands:\n%s", diff)
	}
}

// withRights are the accounts that have any.
func withRights(rights map[string][]string) map[string][]string {
	maps.DeleteFunc(rights, func(_ string, of []string) bool { return len(of) == 0 })
	return rights
}

// used are the rights of the table, by account.
func used(t *testing.T) map[string][]string {
	t.Helper()
	rights, users := map[string][]string{}, map[string]int{}
	for name, own := range grants {
		rights[name] = []string{}
		for _, g := range own {
			if g.who == "" || g.what == "" || g.source == "" {
				t.Errorf("%s, %s: who, what for and source must be set", name, g.resource)
			}
			for verb := range strings.FieldsSeq(g.verbs) {
				rights[name] = append(rights[name], g.where+" "+g.resource+" "+verb)
				users[g.who]++
			}
		}
		slices.Sort(rights[name])
	}
	for _, who := range slices.Sorted(maps.Keys(users)) {
		t.Logf("%-28s %2d permissions", who, users[who])
	}
	return rights
}

// granted returns the installed permissions, by account. Each role is for one account.
func (i *installer) granted(t *testing.T) map[string][]string {
	t.Helper()
	rights, bound := map[string][]string{}, map[string]bool{}
	for name := range i.accounts {
		rights[name] = []string{}
	}
	for _, binding := range i.bindings {
		role := binding.RoleRef.Kind + "/" + binding.RoleRef.Name
		if len(binding.Subjects) != 1 || binding.Subjects[0].Kind != rbacv1.ServiceAccountKind ||
			binding.Subjects[0].Namespace != "gpu-operator" {
			t.Errorf("%s %s is not for one account of the operator's namespace: %v", binding.Kind, binding.Name,
				binding.Subjects)
			continue
		}
		where, name := inCluster, binding.Subjects[0].Name
		if binding.Kind == "RoleBinding" {
			where = inNamespace
		}
		if bound[role] || len(i.roles[role]) == 0 {
			t.Errorf("%s %s refers to %s, which is already bound or grants nothing", binding.Kind, binding.Name, role)
		}
		bound[role] = true
		for _, rule := range i.roles[role] {
			rights[name] = append(rights[name], triples(t, where, rule)...)
		}
		slices.Sort(rights[name])
	}
	for role := range i.roles {
		if !bound[role] {
			t.Errorf("%s is not bound", role)
		}
	}
	return rights
}

// triples returns the permissions of a rule, each as scope, group/resource and verb.
func triples(t *testing.T, where string, rule rbacv1.PolicyRule) []string {
	t.Helper()
	if len(rule.APIGroups) != 1 || len(rule.ResourceNames) > 0 || len(rule.NonResourceURLs) > 0 || strings.Contains(
		fmt.Sprint(rule), "*",
	) {
		t.Errorf("a rule must be for one group, without resourceNames and wildcards: %v", rule)
		return nil
	}
	var found []string
	for _, resource := range rule.Resources {
		for _, verb := range rule.Verbs {
			found = append(found, where+" "+strings.Trim(rule.APIGroups[0]+"/"+resource, "/")+" "+verb)
		}
	}
	return found
}

// An account that does not use the API gets no token, so that no process on the node can misuse it.
func TestAccountsWithoutPermissionsHaveNoToken(t *testing.T) {
	for name, account := range shipped(t).accounts {
		if len(grants[name]) == 0 && withToken(account) {
			t.Errorf("%s has a token and no permissions: set automountServiceAccountToken to false", name)
		}
	}
}

func withToken(account corev1.ServiceAccount) bool {
	return account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken
}
