package dashboards

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/export"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/health"
)

// samples collects lines of the text format.
type samples struct{ strings.Builder }

// add writes a sample of a metric; labels are pairs of a name and a value.
func (s *samples) add(name string, value float64, labels ...string) {
	var pairs []string
	for i := 0; i < len(labels); i += 2 {
		pairs = append(pairs, fmt.Sprintf("%s=%q", labels[i], labels[i+1]))
	}
	fmt.Fprintf(s, "gpu_operator_%s{%s} %g\n", name, strings.Join(pairs, ","), value)
}

// statusOf is the answer of the node status exporter: a node is validated bit by bit, lab-1 twice.
func statusOf(n gpuNode, at time.Time) string {
	var s samples
	minutes := at.Sub(begin).Minutes()
	for i, marker := range []string{"driver", "toolkit", "cuda", "plugin"} {
		ready := 1.0
		if n.name == "train-1" && minutes > 40 && minutes < float64(52+3*i) {
			ready = 0
		}
		s.add("node_"+marker+"_ready", ready, "node", n.name)
		s.add("node_stage_seconds", []float64{184, 9, 21, 34}[i], "node", n.name, "stage", marker)
	}
	s.add("node_metrics_ready_ts_seconds", float64(begin.Unix()), "node", n.name)
	s.add("node_driver_validation", 1, "node", n.name)
	s.add("node_driver_validation_last_success_ts_seconds", float64(at.Unix()), "node", n.name)
	s.add("node_device_plugin_devices_total", float64(n.gpus), "node", n.name)
	s.add("node_device_plugin_validation_last_success_ts_seconds", float64(at.Unix()), "node", n.name)
	s.add("nvidia_pci_devices_total", float64(n.gpus), "node", n.name)
	return s.String()
}

// healthOf is the answer of the health agent. GPU 2 of train-1 gets an uncorrectable error and loses a link.
func healthOf(n gpuNode, at time.Time) string {
	var s samples
	minutes := at.Sub(begin).Minutes()
	s.add("node_kernel_log_gaps_total", 0, "node", n.name)
	s.add("node_gpu_health_writes_total", 1, "node", n.name)
	s.add("node_nvml_sessions_total", 12+minutes, "node", n.name, "outcome", "ok")
	s.add("node_nvml_session_seconds", 0.18, "node", n.name)
	s.add("node_nvml_gpus", float64(n.gpus), "node", n.name)
	for gpu := range n.gpus {
		pci := fmt.Sprintf("0000:%02x:00.0", 7+gpu)
		broken := n.name == "train-1" && gpu == 2
		stateOf(&s, n.name, pci, broken && minutes > 210)
		if broken {
			s.add("node_gpu_xid_total", 1+float64(int(minutes/80)), "node", n.name, "pci", pci, "xid", "31", "class", "App")
		}
		if broken && minutes > 210 {
			s.add("node_gpu_xid_total", 2, "node", n.name, "pci", pci, "xid", "94", "class", "Reset")
			s.add("node_gpu_unhealthy", 1, "node", n.name, "pci", pci, "class", "Reset", "reason", "GPUContainedECC")
			s.add("node_gpu_watched", 1, "node", n.name, "pci", pci, "reason", "GPUMemoryRemapPending")
			s.add("node_nvml_paused", 1, "node", n.name, "reason", "driver-upgrade")
		}
	}
	if n.name == "train-2" {
		s.add("node_nvswitch_sxid_total", 1, "node", n.name, "pci", "0000:c1:00.0", "sxid", "12028")
		s.add("node_gpu_xid_total", float64(int(minutes/45)), "node", n.name, "pci", "0000:08:00.0", "xid", "13",
			"class", "App")
		s.add("node_nvml_problem", 1, "node", n.name, "reason", "NVMLHangs")
	}
	return s.String()
}

// stateOf adds what NVML shows of a GPU.
func stateOf(s *samples, node, pci string, broken bool) {
	bad := map[bool]float64{true: 1}[broken]
	for name, value := range map[string]float64{
		"gpu_ecc_uncorrected": 2 * bad, "gpu_sram_threshold_exceeded": 0, "gpu_row_remap_pending": bad,
		"gpu_row_remap_failed": 0, "gpu_recovery_action": bad, "gpu_pcie_link_width": 16 - 8*bad,
		"gpu_pcie_link_width_max": 16, "gpu_pcie_link_generation": 5, "gpu_pcie_link_generation_max": 5,
		"gpu_throttled_ratio": 0.12 * bad,
	} {
		s.add("node_"+name, value, "node", node, "pci", pci)
	}
	s.add("node_gpu_remapped_rows", bad, "node", node, "pci", pci, "kind", "uncorrectable")
	s.add("node_gpu_remapped_rows", 0, "node", node, "pci", pci, "kind", "correctable")
	s.add("node_gpu_nvlinks", 18-bad, "node", node, "pci", pci, "state", "up")
	s.add("node_gpu_nvlinks", bad, "node", node, "pci", pci, "state", "down")
}

var (
	described = regexp.MustCompile(`fqName: "([^"]+)".*constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)
	labelName = regexp.MustCompile(`(\w+)="`)
)

// describe returns the names of a collector's metrics, with their labels, sorted.
func describe(c prometheus.Collector) map[string][]string {
	descriptions := make(chan *prometheus.Desc, 1000)
	c.Describe(descriptions)
	close(descriptions)
	found := map[string][]string{}
	for d := range descriptions {
		match := described.FindStringSubmatch(d.String())
		var labels []string
		for _, constant := range labelName.FindAllStringSubmatch(match[2], -1) {
			labels = append(labels, constant[1])
		}
		if match[3] != "" {
			labels = append(labels, strings.Split(match[3], ",")...)
		}
		slices.Sort(labels)
		found[match[1]] = labels
	}
	return found
}

// programs returns the metrics of the programs on a node.
func programs() map[string][]string {
	found := describe(export.New(export.Options{Node: "n"}))
	for name, labels := range describe(health.New(health.Options{Node: "n"})) {
		found[name] = labels
	}
	return found
}

var sampleLine = regexp.MustCompile(`(?m)^(\w+)\{([^}]*)\}`)

// The recorded series of the programs on a node have exactly the names and labels that the programs serve.
func TestRecordedNodeSeriesAreThoseOfThePrograms(t *testing.T) {
	recorded := map[string][]string{}
	for _, n := range mixed {
		for _, match := range sampleLine.FindAllStringSubmatch(healthOf(n, end)+statusOf(n, end), -1) {
			var labels []string
			for _, label := range labelName.FindAllStringSubmatch(match[2], -1) {
				labels = append(labels, label[1])
			}
			slices.Sort(labels)
			recorded[match[1]] = labels
		}
	}
	served := programs()
	for name, labels := range served {
		if !slices.Equal(recorded[name], labels) {
			t.Errorf("%s is served with the labels %v and recorded with %v", name, labels, recorded[name])
		}
	}
	for name := range recorded {
		if served[name] == nil {
			t.Errorf("%s is recorded, but no program serves it", name)
		}
	}
}
