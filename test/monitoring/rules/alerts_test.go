package rules

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// The labels of one GPU in the exporter's series, with the node in both spellings.
const (
	gpu    = `hostname="a", gpu="0", UUID="GPU-1", modelName="NVIDIA H100", instance="10.0.0.1:9400"`
	gpuOld = `Hostname="a", gpu="0", UUID="GPU-1", modelName="NVIDIA H100", instance="10.0.0.1:9400"`
	// recorded are those of the recording rules.
	recorded = `UUID="GPU-1", gpu="0", modelName="NVIDIA H100", node="a"`
	// held are the labels of the workload, without and with honorLabels.
	held      = `, exported_pod="p", exported_namespace="n", exported_container="c", pod="x", container="nvidia-dcgm-exporter"`
	heldPlain = `, pod="p", namespace="n", container="c"`
	operator  = `namespace="gpu-operator", pod="gpu-operator-1"`
)

// scenario is what makes an alert fire, and what nearly does.
type scenario struct {
	// bad are series with which the alert fires, each set for itself, from until on: after two hours by default.
	bad   []string
	until time.Duration
	// want are the labels of the alerts.
	want []string
	// good are series of the same metrics with which the alert never fires in three hours.
	good []string
	// onMissing: the alert is about missing series, so that it fires without any.
	onMissing bool
}

// series returns lines "NAME{LABELS} VALUES" for the metrics of one exporter.
func series(labels, values string, names ...string) string {
	text := ""
	for _, name := range names {
		text += fmt.Sprintf("%s{%s} %s\n", name, labels, values)
	}
	return text
}

const agent = `gpu_operator_node_gpu_health_writes_total{node="a"} 1x180` + "\n"

// blind is an agent that cannot read NVML.
const blind = agent + `gpu_operator_node_nvml_problem{node="a", reason="NVMLHangs"} 1x180` + "\n"

// fault is one of a GPU as the exporter shows them, and the alert of a node without a health agent that sees it.
func fault(bad, good []string) scenario {
	s := scenario{bad: slices.Clone(bad), good: good, want: []string{"{" + recorded + "}"}}
	for _, one := range bad {
		s.bad, s.good = append(s.bad, one+blind), append(s.good, one+agent)
	}
	return s
}

func xid(number int) scenario {
	want := fmt.Sprintf(`{UUID="GPU-1", gpu="0", modelName="NVIDIA H100", node="a", xid="%d"}`, number)
	value, counts := fmt.Sprintf("0x3 %dx176", number), fmt.Sprintf(`, xid="%d"`, number)
	s := fault([]string{
		series(gpuOld, value, "DCGM_FI_DEV_XID_ERRORS"), series(gpu, value, "DCGM_FI_DEV_XID_ERROR"),
		// The code is also a label, so that each error is a new series.
		series(gpu+`, err_code="0"`, "0x3 stale", "DCGM_FI_DEV_XID_ERRORS") +
			series(gpu+`, err_code="79"`, fmt.Sprintf("_x4 %dx170", number), "DCGM_FI_DEV_XID_ERRORS"),
		// The exporter's own counter still has it when the last error is another one.
		series(gpu, "31x180", "DCGM_FI_DEV_XID_ERRORS") + series(gpu+counts, "_x3 1x176", "DCGM_EXP_XID_ERRORS_TOTAL"),
	}, []string{
		series(gpu, "0x60 31x60 43x60", "DCGM_FI_DEV_XID_ERRORS"),
		series(gpu, "0x60 13x60 63x60", "DCGM_FI_DEV_XID_ERROR"),
		series(gpu+`, xid="45"`, "1x180", "DCGM_EXP_XID_ERRORS_TOTAL"),
	})
	s.want, s.until = []string{want}, 10*time.Minute
	return s
}

// throttled returns series with bits of the reasons for low clocks, and the labels of the alert.
func throttled(cause string, bits int) ([]string, []string) {
	bad := []string{
		series(gpu, fmt.Sprintf("%dx180", bits), "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"),
		series(gpuOld, fmt.Sprintf("%dx180", bits|4), "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"),
	}
	return bad, []string{fmt.Sprintf(`{cause="%s", node="a"}`, cause)}
}

func scenarios() map[string]scenario {
	all := map[string]scenario{}
	maps.Copy(all, ofGPUs())
	maps.Copy(all, ofLoad())
	maps.Copy(all, ofPrograms())
	maps.Copy(all, ofCollection())
	maps.Copy(all, ofTheOperator())
	maps.Copy(all, ofNodes())
	return all
}

func ofGPUs() map[string]scenario {
	heat, causes := throttled("heat", 64)
	soft, _ := throttled("heat", 32)
	return map[string]scenario{
		"GPUUnhealthy": {
			bad:  []string{`gpu_operator_node_gpu_unhealthy{node="a", pci="0000:1b:00.0", class="Reset", reason="GPUResetRequired", pod="x"} 1x180`},
			want: []string{`{class="Reset", node="a", pci="0000:1b:00.0", reason="GPUResetRequired"}`},
			good: []string{`gpu_operator_node_gpu_unhealthy{node="a", pci="0000:1b:00.0", class="Reset", reason="GPUResetRequired"} 0x180`},
		},
		"GPUWatched": {
			bad:  []string{`gpu_operator_node_gpu_watched{node="a", pci="0000:1b:00.0", reason="GPUThrottled", pod="x"} 1x180`},
			want: []string{`{node="a", pci="0000:1b:00.0", reason="GPUThrottled"}`},
			good: []string{`gpu_operator_node_gpu_watched{node="a", pci="0000:1b:00.0", reason="GPUThrottled"} 1x50 stale`},
		},
		"GPUXidFault":             xid(79),
		"GPUMemoryErrorContained": xid(94),
		"GPUMemoryErrorsUncorrected": fault(
			[]string{series(gpu, "2x100 5x80", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")},
			[]string{series(gpu, "2x180", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")}),
		"GPURowRemapPending": fault(
			[]string{series(gpu, "1x180", "DCGM_FI_DEV_ROW_REMAP_PENDING")},
			[]string{series(gpu, "1x50 0x130", "DCGM_FI_DEV_ROW_REMAP_PENDING")}),
		"GPURowRemapFailed": fault(
			[]string{
				series(gpuOld, "1x180", "DCGM_FI_DEV_ROW_REMAP_FAILURE"), series(gpu, "1x180", "DCGM_FI_DEV_ROW_REMAP_FAILED"),
			},
			[]string{series(gpu, "0x180", "DCGM_FI_DEV_ROW_REMAP_FAILURE")}),
		"GPUNVLinkErrors": fault(
			[]string{
				series(gpu, "0+1x180", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"),
				series(gpu, "0+1x180", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL"),
			},
			[]string{series(gpu, "0x60 1x120", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL")}),
		"GPUThrottled": {
			bad: slices.Concat(heat, soft), want: causes,
			// The power cap, idle clocks, application clocks and the general bit of a slowdown; and heat for a short time.
			good: []string{
				series(gpu, "15x180", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"), series(gpu, "64x10 0x170", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"),
				heat[0] + agent,
			},
		},
	}
}

func ofLoad() map[string]scenario {
	full := func(labels, suffix string, used int) string {
		return series(labels, fmt.Sprintf("%dx180", used), "DCGM_FI_DEV_FB_USED"+suffix) +
			series(labels, fmt.Sprintf("%dx180", 990-used), "DCGM_FI_DEV_FB_FREE"+suffix) +
			series(labels, "10x180", "DCGM_FI_DEV_FB_RESERVED"+suffix)
	}
	return map[string]scenario{
		"GPUTemperatureHigh": {
			bad:  []string{series(gpuOld, "96x180", "DCGM_FI_DEV_GPU_TEMP"), series(gpu, "96x180", "DCGM_FI_DEV_GPU_TEMP_CELSIUS")},
			want: []string{`{node="a"}`},
			good: []string{series(gpu, "88x180", "DCGM_FI_DEV_GPU_TEMP"), series(gpu, "96x10 88x170", "DCGM_FI_DEV_GPU_TEMP_CELSIUS")},
		},
		"GPUMemoryNearlyFull": {
			bad:  []string{full(gpuOld+held, "", 985), full(gpu+held, "_BYTES", 985), full(gpu+heldPlain, "", 985)},
			want: []string{`{namespace="n", node="a", pod="p"}`},
			good: []string{
				full(gpu+held, "", 940), full(gpu+held, "_BYTES", 940),
				// A free GPU with honorLabels has the labels of the exporter's pod.
				full(gpu+`, pod="nvidia-dcgm-exporter-1", namespace="gpu-operator", container="nvidia-dcgm-exporter"`, "", 985),
			},
		},
		"GPUUnderutilized": {
			bad: []string{
				series(gpuOld+held, "3x180", "DCGM_FI_DEV_GPU_UTIL"), series(gpu+held, "0.03x180", "DCGM_FI_DEV_GPU_UTIL_RATIO"),
				series(gpu+heldPlain, "0x180", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
				series(gpu+heldPlain, "0x180", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"),
			},
			until: 132 * time.Minute,
			want:  []string{`{namespace="n", node="a", pod="p"}`},
			good: []string{
				// Busy once an hour, free, and held for less than two hours.
				series(gpu+held, "0x50 60x5 0x50 60x5 0x65", "DCGM_FI_DEV_GPU_UTIL"),
				series(gpu, "0x180", "DCGM_FI_DEV_GPU_UTIL"), series(gpu+held, "0x110 stale", "DCGM_FI_DEV_GPU_UTIL"),
			},
		},
	}
}

// ofPrograms has alerts about what programs do with two GPUs, and with the memory of one.
func ofPrograms() map[string]scenario {
	pair := func(labels, busy, active, util, memory string) string {
		text := ""
		for _, one := range []string{labels, strings.NewReplacer(`"GPU-1"`, `"GPU-2"`, `gpu="0"`, `gpu="1"`).Replace(labels)} {
			text += series(one, util, busy) + series(one, memory, active)
			util = strings.Replace(util, "0.5x180", "0.1x180", 1)
		}
		return text
	}
	const busy, active = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE"
	const busy49, active49 = "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "DCGM_FI_PROF_DRAM_UTIL_RATIO"
	filled := func(labels, used, free string) string {
		return series(labels, used, "DCGM_FI_DEV_FB_USED") + series(labels, free, "DCGM_FI_DEV_FB_FREE")
	}
	pod := []string{`{namespace="n", node="a", pod="p"}`}
	return map[string]scenario{
		"NCCLTrainingStalled": {
			bad: []string{
				pair(gpuOld+held, busy, active, "1x180", "0.001x180"), pair(gpu+heldPlain, busy49, active49, "0.99x180", "0x180"),
			},
			want: pod,
			good: []string{
				pair(gpu+held, busy, active, "0.99x180", "0.3x180"), pair(gpu+held, busy, active, "0.5x180", "0x180"),
				// One GPU waits for nobody, free ones for no program, and without profiling nothing is known.
				series(gpu+held, "1x180", busy) + series(gpu+held, "0x180", active), pair(gpu, busy, active, "1x180", "0x180"),
				pair(gpu+held, busy, active, "1x10 0.5x170", "0x180"), pair(gpu+held, busy, "DCGM_FI_DEV_SM_CLOCK", "1x180", "0x180"),
				// A GPU of the pod works.
				series(gpu+held, "1x180", busy) + series(gpu+held, "0x180", active) +
					pair(strings.ReplaceAll(gpu, "GPU-1", "GPU-3")+held, busy, active, "1x180", "0.2x180"),
			},
		},
		"GPUMemoryLeaking": {
			bad:  []string{filled(gpuOld+held, "100+2x180", "900-2x180"), filled(gpu+heldPlain, "100+1x180", "900-1x180")},
			want: pod, until: 170 * time.Minute,
			good: []string{
				// It grows once, or goes up and down, or so slowly that it takes days.
				filled(gpu+held, "100+8x60 580x120", "900-8x60 420x120"),
				filled(gpu+held, "100x60 300x60 100x60", "900x60 700x60 900x60"),
				filled(gpu+held, "100+0.1x180", "900-0.1x180"), filled(gpu, "100+2x180", "900-2x180"),
			},
		},
	}
}

func ofCollection() map[string]scenario {
	const target = `up{job="nvidia-dcgm-exporter", instance="10.0.0.1:9400", namespace="gpu-operator", pod="e"} `
	const desired = `gpu_operator_operand_nodes_desired{operand="dcgm-exporter", ` + operator + `} 2x180` + "\n"
	temperature := series(gpu, "50x180", "DCGM_FI_DEV_GPU_TEMP")
	return map[string]scenario{
		"GPUExporterDown": {
			bad:  []string{target + "0x180"},
			want: []string{`{instance="10.0.0.1:9400", job="nvidia-dcgm-exporter", namespace="gpu-operator", pod="e"}`},
			good: []string{target + "0x10 1x170"},
		},
		"GPUMetricsMissing": {
			bad: []string{
				desired, desired + temperature, desired + series(gpu, "50x180", "DCGM_FI_DEV_TEMPERATURE_OF_A_LATER_RELEASE"),
				// Nodes of other clusters do not count.
				desired + series(gpu+`, cluster="x"`, "50x180", "DCGM_FI_DEV_GPU_TEMP") +
					series(`hostname="b", cluster="x"`, "50x180", "DCGM_FI_DEV_GPU_TEMP"),
			},
			want: []string{"{}"},
			good: []string{desired + temperature + strings.ReplaceAll(temperature, `hostname="a"`, `hostname="b"`)},
		},
		"GPUSeriesMissing": {
			bad:  []string{healthy(old, "DCGM_FI_DEV_POWER_USAGE"), healthy(renamed, "DCGM_FI_DEV_BOARD_POWER_WATTS")},
			want: []string{`{series="power"}`},
			good: []string{
				healthy(old), healthy(renamed), healthy(old, "DCGM_FI_DEV_XID_ERRORS") + agent,
				// A MIG device has no utilisation from NVML.
				healthy(old, "DCGM_FI_DEV_GPU_UTIL"), healthy(old, "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
			},
		},
		"GPUHealthSeriesMissing": {
			bad:  []string{healthy(old) + series(gpu, "0x180", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")},
			want: []string{`{series="memory-errors"}`},
			good: []string{
				healthy(old) + agent,
				healthy(old) + series(gpu, "0x180", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
			},
		},
		"GPURuleParametersMissing": {onMissing: true, good: []string{""}},
	}
}

// The series of one healthy GPU that the exporter's default list gives, by the names before and since 4.9.0.
var (
	old = map[string]string{
		"DCGM_FI_DEV_GPU_UTIL": "60x180", "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.6x180", "DCGM_FI_DEV_FB_USED": "500x180",
		"DCGM_FI_DEV_FB_FREE": "490x180", "DCGM_FI_DEV_FB_RESERVED": "10x180", "DCGM_FI_DEV_GPU_TEMP": "60x180",
		"DCGM_FI_DEV_POWER_USAGE": "400x180", "DCGM_FI_DEV_XID_ERRORS": "0x180", "DCGM_FI_DEV_ROW_REMAP_FAILURE": "0x180",
	}
	renamed = map[string]string{
		"DCGM_FI_DEV_GPU_UTIL_RATIO": "0.6x180", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": "0.6x180",
		"DCGM_FI_DEV_FB_USED_BYTES": "500x180", "DCGM_FI_DEV_FB_FREE_BYTES": "490x180",
		"DCGM_FI_DEV_FB_RESERVED_BYTES": "10x180", "DCGM_FI_DEV_GPU_TEMP_CELSIUS": "60x180",
		"DCGM_FI_DEV_BOARD_POWER_WATTS": "400x180", "DCGM_FI_DEV_XID_ERROR": "0x180", "DCGM_FI_DEV_ROW_REMAP_FAILED": "0x180",
	}
)

// healthy returns these series without some of them.
func healthy(all map[string]string, without ...string) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(without, name) {
			text += series(gpu+held, all[name], name)
		}
	}
	return text
}

// state returns the scenario of a metric of the operator, with the labels of the alert.
func state(labels, bad, good string, names ...string) scenario {
	if labels != "" {
		labels = ", " + labels
	}
	return scenario{
		bad: []string{series(operator+labels, bad, names...)}, want: []string{`{namespace="gpu-operator"}`},
		good: []string{series(operator+labels, good, names...)},
	}
}

func ofTheOperator() map[string]scenario {
	all := map[string]scenario{
		"GPUOperatorNotWorking": {
			onMissing: true,
			good:      []string{`controller_runtime_reconcile_total{controller="clusterpolicy", result="success", ` + operator + `} 5x180`},
		},
		"GPUOperatorReconcileErrors": state(`controller="node"`, "0+2x180", "0+0.2x180",
			"controller_runtime_reconcile_errors_total"),
		"GPUNodesDegraded":   state(`stage="Driver", state="degraded"`, "1x180", "1x10 0x170", "gpu_operator_nodes"),
		"GPUsLost":           state(`state="lost"`, "2x180", "2x10 0x170", "gpu_operator_gpus"),
		"GPUMIGConfigFailed": state("", "1x180", "1x10 0x170", "gpu_operator_nodes_mig_failed"),
		"GPUDriverUpgradeStuck": state("", "1x180", "0x180",
			"gpu_operator_nodes_upgrades_held", "gpu_operator_nodes_upgrades_failed"),
		"GPUOperatorHangs":                state(`name="node"`, "700x180", "500x180", "workqueue_longest_running_processor_seconds"),
		"GPUOperatorReconciliationFailed": state("", "0x180", "0x50 1x130", "gpu_operator_reconciliation_status"),
		"GPUOperatorReconciliationFailedNfdLabelsMissing": state("", "0x180", "1x180",
			"gpu_operator_reconciliation_status", "gpu_operator_reconciliation_has_nfd_labels"),
		"GPUOperatorDriverAutoUpgradeFailures": state("", "1x180", "0x180",
			"gpu_operator_nodes_upgrades_failed", "gpu_operator_driver_auto_upgrade_enabled"),
	}
	for alert, metric := range map[string]string{
		"NfdTooOld": "nfd_too_old", "ImageStreamMissing": "imagestream_missing",
		"ImageStreamBroken": "imagestream_broken", "ImageTagsMissing": "rhcos_tags_missing",
	} {
		all["GPUOperatorOpenshiftDriverToolkitEnabled"+alert] = state("", "1x180", "0x180",
			"gpu_operator_openshift_driver_toolkit_"+metric)
	}
	for alert, label := range map[string]string{
		"GPUOperatorReconcileErrors": `controller="node"`, "GPUNodesDegraded": `stage="Driver"`, "GPUOperatorHangs": `name="node"`,
	} {
		one := all[alert]
		one.want = []string{"{" + label + "}"}
		all[alert] = one
	}
	return all
}

func ofNodes() map[string]scenario {
	all := map[string]scenario{}
	for alert, metrics := range map[string][2]string{
		"GPUOperatorNodeDeploymentFailed":       {"", "gpu_operator_node_device_plugin_devices_total"},
		"GPUOperatorNodeDeploymentDriverFailed": {"", "gpu_operator_node_driver_validation"},
		"GPUOperatorNodeDeploymentToolkitFailed": {
			"gpu_operator_node_driver_validation", "gpu_operator_node_toolkit_ready",
		},
		"GPUOperatorNodeDeploymentCudaFailed": {"gpu_operator_node_toolkit_ready", "gpu_operator_node_cuda_ready"},
	} {
		before := ""
		if metrics[0] != "" {
			before = series(`node="a"`, "1x180", metrics[0])
		}
		all[alert] = scenario{
			bad: []string{before + series(`node="a"`, "0x180", metrics[1])}, want: []string{`{node="a"}`},
			good: []string{before + series(`node="a"`, "0x20 1x160", metrics[1])},
		}
	}
	return all
}

func allAlerts(t *testing.T) []group {
	t.Helper()
	return read(t, parameters, recording, alerts, ofOperator, ofNodeStatus)
}

// needed returns an alert with the recording rules that it depends on, in their groups.
func needed(t *testing.T, groups []group, alert string) []group {
	t.Helper()
	names := map[string]bool{}
	// A record is in a group before those that use it, or before it in the same group.
	var found []group
	for _, group := range slices.Backward(groups) {
		var kept []rule
		for _, rule := range slices.Backward(group.Rules) {
			if rule.Alert == alert || rule.Record != "" && names[rule.Record] {
				kept = append(kept, rule)
				addMetrics(t, names, rule.Expr)
			}
		}
		slices.Reverse(kept)
		if group.Rules = kept; len(kept) > 0 {
			found = append(found, group)
		}
	}
	slices.Reverse(found)
	return found
}

// addMetrics adds the names of the metrics in an expression.
func addMetrics(t *testing.T, names map[string]bool, expression string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if selector, is := node.(*parser.VectorSelector); is {
			names[selector.Name] = true
		}
		return nil
	})
}

// Each alert fires on its bad series, with the labels that its receiver needs, and stays silent on good ones.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	groups := allAlerts(t)
	all := scenarios()
	var fired, silent atomic.Int32
	bad, good := 0, 0
	t.Run("alerts", func(t *testing.T) {
		for name, s := range all {
			bad, good = bad+len(s.bad), good+len(s.good)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s.check(t, name, needed(t, groups, name), &fired, &silent)
			})
		}
	})
	t.Logf("%d alerts: %d/%d sets of bad series, %d/%d of good ones", len(all), fired.Load(), bad, silent.Load(), good)
}

// check counts the sets of series with which the alert does as it should.
func (s scenario) check(t *testing.T, name string, groups []group, fired, silent *atomic.Int32) {
	t.Helper()
	until := s.until
	if until == 0 {
		until = 2 * time.Hour
	}
	var want []string
	for _, labels := range s.want {
		want = append(want, name+labels)
	}
	for i, bad := range s.bad {
		firing, _ := newCluster(t, groups, bad).run(until)
		firing = slices.DeleteFunc(firing, func(one string) bool { return !strings.HasPrefix(one, name+"{") })
		if !slices.Equal(firing, want) {
			t.Errorf("bad series %d: %s fires, want %s\n%s", i, firing, want, bad)
			continue
		}
		fired.Add(1)
	}
	for i, good := range s.good {
		if _, ever := newCluster(t, groups, good).run(3 * time.Hour); ever[name] {
			t.Errorf("good series %d: it fires\n%s", i, good)
			continue
		}
		silent.Add(1)
	}
}

// An error with the same number as the last one is noticed by its counter.
func TestARepeatedMemoryError(t *testing.T) {
	t.Parallel()
	const alert = "GPUMemoryErrorContained"
	groups := needed(t, allAlerts(t), alert)
	repeated := series(gpu, "94x240", "DCGM_FI_DEV_XID_ERRORS") +
		series(gpu+`, xid="94"`, "1x150 2x90", "DCGM_EXP_XID_ERRORS_TOTAL")
	for at, fires := range map[time.Duration]bool{
		10 * time.Minute: true, 140 * time.Minute: false, 160 * time.Minute: true, 230 * time.Minute: false,
	} {
		firing, _ := newCluster(t, groups, repeated).run(at)
		firing = slices.DeleteFunc(firing, func(one string) bool { return !strings.HasPrefix(one, alert+"{") })
		if len(firing) > 0 != fires {
			t.Errorf("after %s: %q", at, firing)
		}
	}
}

// Every alert has a scenario with bad and good series. Without any series only those fire that are about missing ones.
func TestMissingSeriesAreSilent(t *testing.T) {
	t.Parallel()
	groups, all := allAlerts(t), scenarios()
	var names []string
	for _, group := range groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			names = append(names, rule.Alert)
			if s := all[rule.Alert]; len(s.good) == 0 || len(s.bad) == 0 && !s.onMissing {
				t.Errorf("%s is not tested", rule.Alert)
			}
		}
	}
	if len(names) != len(all) {
		t.Errorf("there are %d alerts and scenarios for %d", len(names), len(all))
	}
	// Without the constants of the first group.
	_, ever := newCluster(t, groups[1:], "").run(3 * time.Hour)
	silent := 0
	for _, name := range names {
		if ever[name] != all[name].onMissing {
			t.Errorf("%s: fires without series: %v, want %v", name, ever[name], all[name].onMissing)
			continue
		}
		silent++
	}
	t.Logf("%d/%d alerts as expected without series", silent, len(names))
}

// A healthy cluster is quiet, with the names of each release of the exporter, with the health agent or without.
func TestAHealthyClusterIsQuiet(t *testing.T) {
	t.Parallel()
	up := `up{job="nvidia-dcgm-exporter", instance="10.0.0.1:9400", pod="e"} 1x180
		controller_runtime_reconcile_total{controller="clusterpolicy", ` + operator + `} 5x180
		gpu_operator_operand_nodes_desired{operand="dcgm-exporter", ` + operator + `} 1x180
		`
	for name, test := range map[string]struct {
		series string
		want   []string
	}{
		"before 4.9":            {healthy(old), []string{"GPUHealthSeriesMissing"}},
		"since 4.9":             {healthy(renamed), []string{"GPUHealthSeriesMissing"}},
		"with the health agent": {healthy(old) + agent, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ever := newCluster(t, allAlerts(t), up+test.series).run(3 * time.Hour)
			if got := slices.Sorted(maps.Keys(ever)); !slices.Equal(got, test.want) {
				t.Errorf("%v fired, want %v", got, test.want)
			}
		})
	}
}

// Prometheus accepts all rules, names are unique, and alerts have what a receiver needs.
func TestRulesAreValid(t *testing.T) {
	t.Parallel()
	groups := append(allAlerts(t), read(t, aliases, ofAccelerator)...)
	data, err := yaml.Marshal(map[string]any{"groups": groups})
	if err != nil {
		t.Fatal(err)
	}
	if _, errs := rulefmt.Parse(data, false, model.UTF8Validation, parser.NewParser(parser.Options{}), promslog.NewNopLogger()); len(errs) > 0 {
		t.Fatal(errs)
	}
	seen := map[string]bool{}
	page, err := os.ReadFile(filepath.Join(root, "docs/troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			if seen[rule.Alert] {
				t.Errorf("there are two alerts %s", rule.Alert)
			}
			seen[rule.Alert] = true
			checkAlert(t, rule, string(page))
		}
	}
	_, section, _ := strings.Cut(string(page), "\n## Alerts\n")
	for _, heading := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(section, -1) {
		if !seen[heading[1]] {
			t.Errorf("docs/troubleshooting.md has a section of an alert %s that does not exist", heading[1])
		}
	}
}

func checkAlert(t *testing.T, rule rule, page string) {
	t.Helper()
	if severity := rule.Labels["severity"]; !slices.Contains([]string{"critical", "warning", "info"}, severity) {
		t.Errorf("%s has the severity %q", rule.Alert, severity)
	}
	if rule.For == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
		t.Errorf("%s lacks for, summary or description", rule.Alert)
	}
	if anchor := "/docs/troubleshooting.md#" + strings.ToLower(rule.Alert); !strings.HasSuffix(
		rule.Annotations["runbook_url"], anchor) {
		t.Errorf("%s: runbook_url is %q, want one that ends with %s", rule.Alert, rule.Annotations["runbook_url"], anchor)
	}
	if !strings.Contains(page, "\n### "+rule.Alert+"\n") {
		t.Errorf("docs/troubleshooting.md has no section %s", rule.Alert)
	}
}
