package simulator

import (
	"context"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// features returns the labels of GPU Feature Discovery in a pod of it.
func (n *node) features(p *pod) map[string]string {
	model := models[n.model]
	config, strategy := p.config(), p.migStrategy()
	_, sharing := config.shared()
	labels := map[string]string{
		"gpu.family": model.family, "gpu.compute.major": model.compute[0], "gpu.compute.minor": model.compute[1],
		"mig.capable": strconv.FormatBool(len(model.profiles) > 0),
		"mps.capable": strconv.FormatBool(sharing == sharingMPS && !n.hasMIG()),
	}
	if strategy != strategyNone {
		labels["mig.strategy"] = strategy
	}
	if version := n.driverVersion(); version != "" {
		labels["cuda.driver-version.full"] = version
	}
	set := func(prefix, product string, count, memory, replicas int64) {
		maps.Copy(labels, featuresOf(prefix, product, sharing, count, memory, replicas))
	}
	replicas := config.replicas(resourceGPU)
	devices, failure := n.devices(strategy)
	switch {
	case failure != "":
		set("gpu", n.model+"-MIG-INVALID", 0, 0, 0)
	case strategy == strategySingle && n.hasMIG():
		profile := n.firstProfile()
		set("gpu", shareSuffix(config, resourceGPU, n.model+"-MIG-"+profile), devices[resourceGPU],
			int64(model.profiles[profile].mebibytes), replicas)
	case n.hasMIG() && devices[resourceGPU] == 0, n.hasMIG() && strategy == strategyNone:
		// A GPU that is partitioned is counted, but nothing of it is advertised under this name.
		set("gpu", n.model, n.gpus, int64(model.memory), 0)
	default:
		set("gpu", shareSuffix(config, resourceGPU, n.model), n.gpus, int64(model.memory), replicas)
	}
	for profile, of := range model.profiles {
		name := migResource(profile)
		if count := devices[name]; count > 0 {
			dotted := strings.TrimPrefix(string(name), resourceMIGPrefix)
			set("mig-"+dotted, shareSuffix(config, name, n.model+"-MIG-"+dotted), count, int64(of.mebibytes),
				config.replicas(name))
		}
	}
	return labels
}

// driverVersion returns the version of the driver by the tag of its image, which ends with the name of the operating
// system; empty without a driver pod.
func (n *node) driverVersion() string {
	for _, p := range n.pods {
		if p.drives() {
			image := p.mains[0].spec.Image
			version, _, _ := strings.Cut(image[strings.LastIndex(image, ":")+1:], "-")
			return version
		}
	}
	return ""
}

// featuresOf returns the labels of one kind of device. sharing is how it is shared, if it is.
func featuresOf(prefix, product, sharing string, count, memory, replicas int64) map[string]string {
	if replicas <= 1 {
		sharing = sharingNone
	}
	return map[string]string{
		prefix + ".product":          product,
		prefix + ".count":            strconv.FormatInt(count, 10),
		prefix + ".memory":           strconv.FormatInt(memory, 10),
		prefix + ".replicas":         strconv.FormatInt(replicas, 10),
		prefix + ".sharing-strategy": sharing,
	}
}

// shareSuffix returns a product with the mark of shared devices, unless their resource is renamed instead.
func shareSuffix(config pluginConfig, resource corev1.ResourceName, product string) string {
	if config.replicas(resource) > 1 && config.advertisedAs(resource) == resource {
		return product + "-SHARED"
	}
	return product
}

// firstProfile returns the profile of a MIG device of the node.
func (n *node) firstProfile() string {
	for _, gpu := range n.partitions {
		for profile := range gpu.devices {
			return profile
		}
	}
	return ""
}

// writeFeatures writes the labels of GPU Feature Discovery to a node of a known model. They stay while it does not run.
func (n *node) writeFeatures(ctx context.Context) error {
	if n.model == "" {
		return nil
	}
	for _, p := range n.pods {
		if p.app != appFeatures || p.ending() || !p.mains[0].provides() {
			continue
		}
		found := map[string]string{}
		for name, value := range n.features(p) {
			found[vendorPrefix+name] = value
		}
		changes := map[string]any{}
		for key, value := range found {
			if n.object.Labels[key] != value {
				changes[key] = value
			}
		}
		for key := range n.featured {
			if _, still := found[key]; !still {
				changes[key] = nil
			}
		}
		n.featured = maps.Clone(found)
		if len(changes) == 0 {
			return nil
		}
		return n.patchMetadata(ctx, map[string]any{"labels": changes})
	}
	return nil
}
