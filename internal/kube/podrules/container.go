package podrules

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
)

// checkProbe checks a probe, whose kind is the name of its field.
func checkProbe(probe v1.ProbeSpec, kind string, found report) {
	if probe.SuccessThreshold > 1 && kind != "readinessProbe" {
		found(".successThreshold", "must be 1, unless in a readiness probe")
	}
}

func checkResources(resources v1.ResourceRequirements, found report) {
	limits, requests := rounded(resources.Limits), rounded(resources.Requests)
	checkQuantities(".limits", limits, found)
	checkQuantities(".requests", requests, found)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		request := requests[name]
		limit, limited := limits[name]
		switch below := ".requests[" + string(name) + "]"; {
		case !limited && !mayOvercommit(name):
			found(below, "needs the same limit, as Kubernetes does not overcommit it: add it to limits")
		case limited && request.Cmp(limit) != 0 && !mayOvercommit(name):
			found(below, "%s must equal the limit of %s, as Kubernetes does not overcommit it", &request, &limit)
		case limited && request.Cmp(limit) > 0:
			found(below, "%s exceeds the limit of %s: lower it, or raise the limit", &request, &limit)
		}
	}
	if hasHugePages(limits, requests) && !hasAny(limits, requests, corev1.ResourceCPU, corev1.ResourceMemory) {
		found("", "huge pages need cpu or memory beside them: add one")
	}
}

// rounded returns the resources as the API server stores them, in steps of a thousandth.
func rounded(list corev1.ResourceList) corev1.ResourceList {
	result := make(corev1.ResourceList, len(list))
	for name, quantity := range list {
		quantity = quantity.DeepCopy()
		quantity.RoundUp(resource.Milli)
		result[name] = quantity
	}
	return result
}

func checkQuantities(list string, resources corev1.ResourceList, found report) {
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		quantity, below := resources[name], list+"["+string(name)+"]"
		switch {
		case !isOfContainers(name):
			found(below, "is not a resource of containers: use cpu, memory, ephemeral-storage, hugepages-SIZE or a resource "+
				"such as example.com/name")
		case quantity.Sign() < 0:
			found(below, "%s is negative", &quantity)
		case isHugePage(name) && !isMultipleOfPage(name, quantity):
			found(below, "%s is not a multiple of the size of a page", &quantity)
		case isExtended(name) && quantity.MilliValue()%1000 != 0:
			found(below, "%s is not a whole number", &quantity)
		}
	}
}

func isHugePage(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isNative reports whether Kubernetes defines the resource, by its name.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

func isExtended(name corev1.ResourceName) bool {
	return !isNative(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

func mayOvercommit(name corev1.ResourceName) bool { return isNative(name) && !isHugePage(name) }

func isOfContainers(name corev1.ResourceName) bool {
	switch {
	case len(validation.IsQualifiedName(string(name))) > 0:
		return false
	case !strings.Contains(string(name), "/"):
		return isHugePage(name) || slices.Contains([]corev1.ResourceName{
			corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
		}, name)
	}
	return isNative(name) || isExtended(name)
}

func isMultipleOfPage(name corev1.ResourceName, quantity resource.Quantity) bool {
	page, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	return err == nil && page.Sign() > 0 && page.MilliValue()%1000 == 0 && quantity.Value()%page.Value() == 0
}

func hasHugePages(lists ...corev1.ResourceList) bool {
	for _, list := range lists {
		for name := range list {
			if isHugePage(name) {
				return true
			}
		}
	}
	return false
}

func hasAny(limits, requests corev1.ResourceList, names ...corev1.ResourceName) bool {
	return slices.ContainsFunc(names, func(name corev1.ResourceName) bool {
		_, limited := limits[name]
		_, requested := requests[name]
		return limited || requested
	})
}
