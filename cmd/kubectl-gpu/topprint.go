package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clusterpolicy/gpu-operator/internal/cli/gpuusage"
)

// usageTitles are the columns of each table.
const usageTitles = "UTIL\tMEMORY\tMEMORY%\tPOWER\tTEMP"

// print prints a value in the format of the flags; text for people.
func (o *topOptions) print(cmd *cobra.Command, found any, text string) error {
	encoded := []byte(text)
	if o.output == formatJSON || o.output == formatYAML {
		var err error
		if encoded, err = encode(found, o.output); err != nil {
			return fmt.Errorf("encoding the usage: %w", err)
		}
	}
	if _, err := cmd.OutOrStdout().Write(encoded); err != nil {
		return fmt.Errorf("writing the usage: %w", err)
	}
	return nil
}

func nodesTable(nodes []gpuusage.Node, wide bool) string {
	if len(nodes) == 0 {
		return "No GPU is reported.\n"
	}
	lines := []string{"NODE\tGPUS\t" + usageTitles}
	if wide {
		lines = []string{"NODE\tGPU\tPRODUCT\t" + usageTitles + "\tPODS"}
	}
	for i := range nodes {
		node := &nodes[i]
		if !wide {
			lines = append(lines, fmt.Sprintf("%s\t%d\t%s", node.Name, node.GPUs, usageText(node.Usage)))
			continue
		}
		for j := range node.Devices {
			d := &node.Devices[j]
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", node.Name, gpuText(d), orDash(d.Product),
				usageText(d.Usage), holdersText(d.Holders)))
		}
	}
	return table(lines)
}

// withoutText names the nodes that are not to run an exporter.
func withoutText(nodes []noAnswer) string {
	text := &strings.Builder{}
	for i, node := range nodes {
		if i == maxNamed {
			fmt.Fprintf(text, "No exporter is to run on %s more.\n", count(len(nodes)-maxNamed, "node"))
			break
		}
		fmt.Fprintf(text, "No exporter is to run on %s: %s.\n", node.Node, node.Message)
	}
	return text.String()
}

func podsTable(pods []gpuusage.Pod, wide bool) string {
	if len(pods) == 0 {
		return "No pod with a GPU is reported.\n"
	}
	lines := []string{"NAMESPACE\tPOD\tNODE\tGPUS\t" + usageTitles}
	if wide {
		lines = []string{"NAMESPACE\tPOD\tCONTAINER\tNODE\tGPU\tPRODUCT\t" + usageTitles}
	}
	for i := range pods {
		pod := &pods[i]
		if !wide {
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%d\t%s", pod.Namespace, pod.Name, pod.Node, pod.Devices,
				usageText(pod.Usage)))
			continue
		}
		for j := range pod.Parts {
			d := &pod.Parts[j]
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", pod.Namespace, pod.Name,
				orDash(d.Holders[0].Container), d.Node, gpuText(d), orDash(d.Product), usageText(d.Usage)))
		}
	}
	return table(lines)
}

func table(lines []string) string {
	text := &strings.Builder{}
	writeAligned(text, lines...)
	return text.String()
}

// gpuText names a device on its node, such as 3 or 3/1g.10gb:7.
func gpuText(d *gpuusage.Device) string {
	if d.MIGInstance == "" {
		return d.GPU
	}
	return fmt.Sprintf("%s/%s:%s", d.GPU, d.MIGProfile, d.MIGInstance)
}

func holdersText(holders []gpuusage.Holder) string {
	var all []string
	for _, h := range holders {
		all = append(all, h.Namespace+"/"+h.Pod)
	}
	return orDash(named(all))
}

func usageText(u gpuusage.Usage) string {
	memory, percent := "-", "-"
	if u.MemoryUsedBytes != nil {
		memory = fmt.Sprintf("%dMi", *u.MemoryUsedBytes>>20)
	}
	if u.MemoryUsedBytes != nil && u.MemoryTotalBytes != nil && *u.MemoryTotalBytes > 0 {
		percent = fmt.Sprintf("%.0f%%", 100*float64(*u.MemoryUsedBytes)/float64(*u.MemoryTotalBytes))
	}
	return strings.Join([]string{
		rounded(u.UtilizationPercent, "%"), memory, percent, rounded(u.PowerWatts, "W"), rounded(u.TemperatureCelsius, "C"),
	}, "\t")
}

func rounded(known *float64, unit string) string {
	if known == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%s", math.Round(*known), unit)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return strings.ReplaceAll(text, " ", "-")
}
