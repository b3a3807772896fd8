// Package viewer has what the commands of kubectl gpu read of a cluster, and the ClusterRole with the rights to it. The
// manifest of the role is generated from the table, which a test compares with what the commands ask for.
package viewer

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// ClusterRole is the name of the role with the rights of the table. Every installer ships it, and nothing binds it.
const ClusterRole = "gpu-operator-viewer"

// Proxied is the resource that the role does not have, although top reads it: who has it sends requests to any port of
// any pod. Kubernetes keeps it from its own role view, too.
const Proxied = "pods/proxy"

// Groups of the API that have resources in the table.
const (
	core      = ""
	apps      = "apps"
	dra       = "resource.k8s.io"
	nvidia    = "nvidia.com"
	openShift = labels.OpenShiftConfigGroup
)

// Right is the right to read objects of one resource.
type Right struct {
	// Group of the API; empty for core.
	Group string
	// Resource, or subresource such as pods/log.
	Resource string
	// Verbs are some of get, list and watch, sorted.
	Verbs []string
	// Name of the only object; empty for all.
	Name string
}

// reading returns rights to resources of a group, which are separated by spaces.
func reading(group, resources string, verbs ...string) []Right {
	var all []Right
	for resource := range strings.FieldsSeq(resources) {
		all = append(all, Right{Group: group, Resource: resource, Verbs: verbs})
	}
	return all
}

// previewed is what plan, diff, render and mirror read, except Secrets: these are never in the role.
var previewed = slices.Concat(
	reading(core, "nodes pods services configmaps", "list"),
	reading(apps, "daemonsets deployments", "list"),
	reading("policy", "poddisruptionbudgets", "list"),
	reading("node.k8s.io", "runtimeclasses", "list"),
	reading(nvidia, "clusterpolicies nvidiadrivers", "list"),
	reading("monitoring.coreos.com", "servicemonitors prometheusrules", "list"),
	reading(dra, "resourceclaims", "list"),
	reading(openShift, "proxies clusterversions", "list"),
	reading("apiextensions.k8s.io", "customresourcedefinitions", "get"),
	reading("scheduling.k8s.io", "priorityclasses", "get"),
	[]Right{
		{
			"admissionregistration.k8s.io", "validatingadmissionpolicybindings", []string{"get"}, labels.AgentPolicyBinding,
		},
		{"image.openshift.io", "imagestreams", []string{"get"}, labels.DriverToolkitName},
	},
)

// byCommand is what each command reads, by its name.
var byCommand = map[string][]Right{
	"status": slices.Concat(
		reading(core, "nodes pods", "list", "watch"), reading(nvidia, "clusterpolicies", "list", "watch"),
	),
	"explain": slices.Concat(
		reading(core, "nodes pods events", "list"), reading(core, "pods/log", "get"),
		reading(nvidia, "clusterpolicies", "list"), reading(dra, "resourceclaims deviceclasses", "list"),
	),
	"top": slices.Concat(
		reading(core, "nodes pods", "list"), reading(core, Proxied, "get"), reading(nvidia, "clusterpolicies", "list"),
	),
	"logs": slices.Concat(
		reading(core, "pods", "list"), reading(core, "pods/log", "get"), reading(nvidia, "clusterpolicies", "list"),
	),
	"plan":   previewed,
	"diff":   previewed,
	"render": previewed,
	"mirror": previewed,
	"version": slices.Concat(
		reading(apps, "daemonsets deployments", "list"), reading(nvidia, "clusterpolicies", "list"),
	),
}

// Commands returns the names of the commands in the table, sorted.
func Commands() []string { return slices.Sorted(maps.Keys(byCommand)) }

// Of returns what a command reads; nil if it is not in the table.
func Of(command string) []Right { return slices.Clone(byCommand[command]) }

// All returns the rights of all commands, except to Proxied, each resource once, sorted by group, resource and name.
func All() []Right {
	found := map[[3]string]Right{}
	for _, rights := range byCommand {
		for _, right := range rights {
			if right.Resource == Proxied {
				continue
			}
			key := [3]string{right.Group, right.Resource, right.Name}
			right.Verbs = slices.Concat(found[key].Verbs, right.Verbs)
			slices.Sort(right.Verbs)
			right.Verbs = slices.Compact(right.Verbs)
			found[key] = right
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Right) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name))
	})
}
