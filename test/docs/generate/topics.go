package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// topic is a section of troubleshooting.md about one part of the stack, with the reasons that users meet there.
type topic struct {
	// name of the part of the page that is generated, and the heading above it.
	name, heading string
	// reasons by name; an asterisk stands for any end of a name.
	reasons []string
}

// otherReasons is the name of the topic with the reasons that no topic lists.
const otherReasons = "reasons-pods"

// topics are in the order in which users meet them. A reason belongs to the first topic that lists it.
var topics = []topic{
	{"reasons-install", "Install and spec", []string{
		"AdmissionPolicyMissing", "Altered", "Assessing", "DisabledBySpec", "DiscoveryLabelsMissing", "DoubtfulFields",
		"EditReverted", "Excluded", "Ignored", "InvalidSpec", "NoGPUNodes", "NodeDiscoveryMissing", "None", "NotNeeded",
		"NotSelected", "NotSupportedYet", "Paused", "PlacementRepaired", "ReconcileFailed", "Reconciled",
		"ReferenceMissing", "Undecodable",
	}},
	{otherReasons, "Pods of the operands", nil},
	{"reasons-driver", "Driver", []string{
		"ConflictingNodeSelector", "Driver*", "FactsMissing", "Kernel*", "NoNVIDIADriver",
	}},
	{"reasons-toolkit", "Toolkit and container runtime", []string{
		"CreateContainerError", "FailedCreatePodSandBox", "RunContainerError",
	}},
	{"reasons-device-plugin", "Device plugin and GPUs that are not allocatable", []string{
		"DevicePluginOff", "Duplicate*", "ForeignDevicePlugin", "GPUPodsRefused", "GPUReady", "GPUsOfferedTwice",
		"NodeNotReady", "NodeUnreachable", "NotAllocatable", "StartupTaint",
	}},
	{"reasons-upgrades", "Upgrades", []string{"CRDOutdated", "OutdatedComponent", "Upgrad*"}},
	{"reasons-mig", "MIG", []string{"MIG*"}},
	{"reasons-sharing", "Sharing", []string{"PluginConfigInvalid"}},
	{"reasons-health", "Health", []string{"FabricDomain*", "GPU*", "NV*", "NodeRebootRequired", "PCIe*"}},
	{"reasons-removal", "Removal", []string{"NotCleanedUp", "Remov*"}},
	{"reasons-migration", "Migration", []string{"Conflict", "Deprecated", "NotTakenOver", "OtherOperatorRunning"}},
}

// lists reports whether the topic lists the reason, and by which of its names.
func (t topic) lists(reason string) (string, bool) {
	for _, name := range t.reasons {
		if matches, _ := path.Match(name, reason); matches {
			return name, true
		}
	}
	return "", false
}

// byTopic returns the reasons of each topic, sorted by name. A topic that lists a reason which it does not get is an
// error.
func byTopic(all []reason, topics []topic) (map[string][]reason, error) {
	sorted := map[string][]reason{}
	listed := map[string]bool{}
	for _, r := range all {
		belongs := otherReasons
		for _, t := range topics {
			if name, found := t.lists(r.value); found {
				belongs, listed[t.name+name] = t.name, true
				break
			}
		}
		sorted[belongs] = append(sorted[belongs], r)
	}
	for _, t := range topics {
		for _, name := range t.reasons {
			if !listed[t.name+name] {
				return nil, fmt.Errorf("the topic %q lists %s, which is no reason or belongs to an earlier topic", t.heading, name)
			}
		}
		slices.SortFunc(sorted[t.name], func(a, b reason) int { return strings.Compare(a.value, b.value) })
	}
	return sorted, nil
}

// troubleshooting are the generated parts of troubleshooting.md: the entries of each topic, and a list of them all.
func troubleshooting() map[string]source {
	parts := map[string]source{"reasons": reasonIndex}
	for _, t := range topics {
		parts[t.name] = func(repo string) (string, error) { return reasonEntries(repo, t.name) }
	}
	return parts
}

// reasonsByTopic returns the reasons of the API by their topics.
func reasonsByTopic(repo string) (map[string][]reason, error) {
	all, err := reasons(repo)
	if err != nil {
		return nil, err
	}
	return byTopic(all, topics)
}

// reasonEntries has an entry for each reason of a topic.
func reasonEntries(repo, topic string) (string, error) {
	sorted, err := reasonsByTopic(repo)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, r := range sorted[topic] {
		fmt.Fprintf(&out, "### %s\n\n%s\n\n- Cause: %s\n- Remedy: %s\n\n", r.value, r.means, r.cause, r.remedy)
	}
	return out.String(), nil
}

// reasonIndex has a row for each topic, with links to its section and to its reasons.
func reasonIndex(repo string) (string, error) {
	sorted, err := reasonsByTopic(repo)
	if err != nil {
		return "", err
	}
	var rows [][]string
	for _, t := range topics {
		var links []string
		for _, r := range sorted[t.name] {
			links = append(links, entryLink("", r.value))
		}
		section := strings.ReplaceAll(strings.ToLower(t.heading), " ", "-")
		rows = append(rows, []string{fmt.Sprintf("[%s](#%s)", t.heading, section), strings.Join(links, ", ")})
	}
	return table([]string{"section", "reasons"}, rows), nil
}
