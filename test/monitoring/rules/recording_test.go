package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// card is the labels of GPU number n of node a, in the spelling of an exporter.
func card(host string, n int, more string) string {
	return fmt.Sprintf(`%s="a", gpu="%d", UUID="GPU-%d", modelName="NVIDIA H100", instance="10.0.0.1:9400"%s`, host, n, n, more)
}

// workload returns the labels that Prometheus gives the series of a GPU that a pod holds, with honorLabels false.
func workload(pod, more string) string {
	return fmt.Sprintf(`, exported_pod="%s", exported_namespace="n", exported_container="c", pod="x", `+
		`namespace="gpu-operator", container="nvidia-dcgm-exporter"%s`, pod, more)
}

// honored returns them with honorLabels true.
func honored(pod, more string) string {
	return fmt.Sprintf(`, pod="%s", namespace="n", container="c"%s`, pod, more)
}

// exporters are the releases of the exporter that the rules know: the label of the node, the names of metrics, and what
// their values are multiplied by.
var exporters = map[string]struct {
	host     string
	labels   func(pod, more string) string
	names    map[string]string
	percent  float64
	megabyte float64
}{
	"4.8.2":                  {"Hostname", workload, nil, 100, 1},
	"4.8.3":                  {"hostname", workload, nil, 100, 1},
	"4.8.3 with honorLabels": {"hostname", honored, nil, 100, 1},
	"4.9.0":                  {"hostname", workload, names49, 1, 1048576},
	"4.9.0 with honorLabels": {"hostname", honored, names49, 1, 1048576},
}

// names49 are the names since 4.9.0 of the metrics in this file.
var names49 = map[string]string{
	"DCGM_FI_DEV_GPU_UTIL": "DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
	"DCGM_FI_DEV_FB_USED": "DCGM_FI_DEV_FB_USED_BYTES", "DCGM_FI_DEV_FB_FREE": "DCGM_FI_DEV_FB_FREE_BYTES",
	"DCGM_FI_DEV_FB_RESERVED": "DCGM_FI_DEV_FB_RESERVED_BYTES", "DCGM_FI_DEV_GPU_TEMP": "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
	"DCGM_FI_DEV_POWER_USAGE": "DCGM_FI_DEV_BOARD_POWER_WATTS", "DCGM_FI_DEV_XID_ERRORS": "DCGM_FI_DEV_XID_ERROR",
	"DCGM_FI_PROF_DRAM_ACTIVE":                      "DCGM_FI_PROF_DRAM_UTIL_RATIO",
	"DCGM_FI_DEV_ROW_REMAP_FAILURE":                 "DCGM_FI_DEV_ROW_REMAP_FAILED",
	"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL",
}

const prices = `
- {record: "gpu_rules:price_per_hour", expr: vector(2)}
- {record: "gpu_rules:price_per_hour", expr: vector(4), labels: {modelName: NVIDIA H100}}
`

// node returns the series of node a: GPU 0 is used by pod busy, GPU 1 held by pod idle, GPU 2 is free, and two slices
// of GPU 3 are held by pod slices.
func node(name string) string {
	exporter, text := exporters[name], ""
	put := func(labels, metric string, value float64) {
		if renamed := exporter.names[metric]; renamed != "" {
			metric = renamed
		}
		text += series(labels, fmt.Sprintf("%gx180", value), metric)
	}
	memory := func(labels string, used, free, reserved float64) {
		put(labels, "DCGM_FI_DEV_FB_USED", used*exporter.megabyte)
		put(labels, "DCGM_FI_DEV_FB_FREE", free*exporter.megabyte)
		put(labels, "DCGM_FI_DEV_FB_RESERVED", reserved*exporter.megabyte)
	}
	labels := func(n int, pod, more string) string {
		if pod == "" {
			more = `, pod="x", namespace="gpu-operator", container="nvidia-dcgm-exporter"` + more
			return card(exporter.host, n, more)
		}
		return card(exporter.host, n, exporter.labels(pod, more))
	}
	for n, pod := range []string{"busy", "idle", ""} {
		l := labels(n, pod, "")
		used := []float64{0.8, 0.02, 0}[n]
		put(l, "DCGM_FI_DEV_GPU_UTIL", 0.5*exporter.percent)
		put(l, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", used)
		memory(l, []float64{700, 200, 0}[n], []float64{200, 700, 900}[n], 100)
		put(l, "DCGM_FI_PROF_DRAM_ACTIVE", used/2)
		put(l, "DCGM_FI_DEV_GPU_TEMP", 50)
		put(l, "DCGM_FI_DEV_POWER_USAGE", 300)
		put(l, "DCGM_FI_DEV_XID_ERRORS", []float64{0, 31, 0}[n])
		put(l, "DCGM_FI_DEV_ROW_REMAP_FAILURE", 0)
		put(l, "DCGM_FI_DEV_ROW_REMAP_PENDING", 1)
		put(l, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 3)
		put(l, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 128+4)
		put(l, "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 5)
	}
	put(labels(1, "idle", `, xid="31"`), "DCGM_EXP_XID_ERRORS_TOTAL", 3)
	for _, slice := range []string{
		`, GPU_I_ID="1", GPU_I_PROFILE="3g.40gb"`, `, GPU_I_ID="5", GPU_I_PROFILE="1g.10gb"`,
	} {
		l := labels(3, "slices", slice)
		put(l, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.6)
		memory(l, 300, 100, 0)
	}
	return text
}

// want is the value of each recorded series of that node after 72 minutes, with the labels that it must have.
var want = map[string][]string{
	"gpu:utilization:ratio": {
		`{GPU_I_ID="1", GPU_I_PROFILE="3g.40gb", UUID="GPU-3", gpu="3", modelName="NVIDIA H100", node="a"} 0.6`,
		`{GPU_I_ID="5", GPU_I_PROFILE="1g.10gb", UUID="GPU-3", gpu="3", modelName="NVIDIA H100", node="a"} 0.6`,
		h100(0, "0.8"), h100(1, "0.02"), h100(2, "0"),
	},
	"gpu:memory_used:ratio": {
		`{GPU_I_ID="1", GPU_I_PROFILE="3g.40gb", UUID="GPU-3", gpu="3", modelName="NVIDIA H100", node="a"} 0.75`,
		`{GPU_I_ID="5", GPU_I_PROFILE="1g.10gb", UUID="GPU-3", gpu="3", modelName="NVIDIA H100", node="a"} 0.75`,
		h100(0, "0.7"), h100(1, "0.2"), h100(2, "0"),
	},
	"gpu:memory_used:bytes": {
		`{GPU_I_ID="1", GPU_I_PROFILE="3g.40gb", UUID="GPU-3", gpu="3", modelName="NVIDIA H100", node="a"} 3.146e+08`,
		`{GPU_I_ID="5", GPU_I_PROFILE="1g.10gb", UUID="GPU-3", gpu="3", modelName="NVIDIA H100", node="a"} 3.146e+08`,
		h100(0, "7.34e+08"), h100(1, "2.097e+08"), h100(2, "0"),
	},
	"gpu:memory_active:ratio":             {h100(0, "0.4"), h100(1, "0.01"), h100(2, "0")},
	"gpu:temperature:celsius":             {h100(0, "50"), h100(1, "50"), h100(2, "50")},
	"gpu:power:watts":                     {h100(0, "300"), h100(1, "300"), h100(2, "300")},
	"gpu:xid_last:code":                   {h100(0, "0"), h100(1, "31"), h100(2, "0")},
	"gpu:xid:info":                        {strings.Replace(h100(1, "1"), `"}`, `", xid="31"}`, 1)},
	"gpu:xid:total":                       {strings.Replace(h100(1, "3"), `"}`, `", xid="31"}`, 1)},
	"gpu:row_remap_failed:bool":           {h100(0, "0"), h100(1, "0"), h100(2, "0")},
	"gpu:row_remap_pending:bool":          {h100(0, "1"), h100(1, "1"), h100(2, "1")},
	"gpu:memory_errors_uncorrected:total": {h100(0, "3"), h100(1, "3"), h100(2, "3")},
	"gpu:nvlink_recoveries:total":         {h100(0, "5"), h100(1, "5"), h100(2, "5")},
	`sum by (cause) (gpu:throttled:bool)`: {`{cause="heat"} 0`, `{cause="power-supply"} 3`},
	"node:gpu_metrics:bool":               {`{node="a"} 1`},
	"count(gpu_series:utilization:ratio)": {`{} 5`},
	"count(gpu_series:memory_used:ratio)": {`{} 5`},
	"sum by (namespace, pod, container) (gpu_workload:utilization:ratio)": {
		`{container="c", namespace="n", pod="busy"} 0.8`, `{container="c", namespace="n", pod="idle"} 0.02`,
		`{container="c", namespace="n", pod="slices"} 1.2`,
	},
	"sum by (namespace, pod, container) (gpu_workload:memory_used:ratio)": {
		`{container="c", namespace="n", pod="busy"} 0.7`, `{container="c", namespace="n", pod="idle"} 0.2`,
		`{container="c", namespace="n", pod="slices"} 1.5`,
	},
	"pod:gpu_utilization:ratio": {
		`{namespace="n", pod="busy"} 0.8`, `{namespace="n", pod="idle"} 0.02`, `{namespace="n", pod="slices"} 0.6`,
	},
	"namespace:gpu_utilization:ratio": {`{namespace="n"} 0.505`},
	"node:gpu_utilization:ratio":      {`{node="a"} 0.404`},
	"pod:gpu_memory_used:ratio": {
		`{namespace="n", pod="busy"} 0.7`, `{namespace="n", pod="idle"} 0.2`, `{namespace="n", pod="slices"} 0.75`,
	},
	"namespace:gpu_memory_used:ratio": {`{namespace="n"} 0.6`},
	"node:gpu_memory_used:ratio":      {`{node="a"} 0.48`},
	// 3 and 1 of 7 slices.
	"sum by (pod) (gpu_workload:share:ratio)":   {`{pod="busy"} 1`, `{pod="idle"} 1`, `{pod="slices"} 0.5714`},
	"sum by (pod) (gpu_workload:idle:bool)":     {`{pod="busy"} 0`, `{pod="idle"} 1`, `{pod="slices"} 0`},
	"namespace:gpu_allocated:sum":               {`{namespace="n"} 2.571`},
	"namespace:gpu_idle:sum":                    {`{namespace="n"} 1`},
	"sum by (pod) (gpu_workload:cost:per_hour)": {`{pod="busy"} 4`, `{pod="idle"} 4`, `{pod="slices"} 2.286`},
	"namespace:gpu_cost:per_hour":               {`{namespace="n"} 10.29`},
	"namespace:gpu_idle_cost:per_hour":          {`{namespace="n"} 4`},
}

// h100 is the sample of a whole GPU.
func h100(n int, value string) string {
	return fmt.Sprintf(`{UUID="GPU-%d", gpu="%d", modelName="NVIDIA H100", node="a"} %s`, n, n, value)
}

// priced returns the parameters with prices.
func priced(t *testing.T) []group {
	t.Helper()
	groups := read(t, parameters)
	groups[0].Rules = append(groups[0].Rules, decodeRules(t, prices)...)
	return groups
}

// Every recorded series has the same value and labels, whatever the release of the exporter and honorLabels.
func TestRecordingRules(t *testing.T) {
	t.Parallel()
	groups := append(priced(t), read(t, recording)...)
	for name := range exporters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, groups, node(name))
			c.run(72 * time.Minute)
			for expression, want := range want {
				if got := c.query(expression, 70*time.Minute); !slices.Equal(got, want) {
					t.Errorf("%s:\n got %s\nwant %s", expression, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
				}
			}
		})
	}
	for _, group := range groups {
		for _, rule := range group.Rules {
			tested := rule.Record == "gpu_rules:parameter" || rule.Record == "gpu_rules:price_per_hour" ||
				rule.Record == "node:gpu_health_agent:bool"
			for expression := range want {
				tested = tested || strings.Contains(expression, rule.Record)
			}
			if !tested {
				t.Errorf("%s is not tested", rule.Record)
			}
		}
	}
}

// Nodes and namespaces of two clusters in one Prometheus, which have the same names, have series of their own.
func TestClustersStayApart(t *testing.T) {
	t.Parallel()
	groups, one := append(priced(t), read(t, recording)...), node("4.8.3")
	two := ""
	for _, name := range []string{"x", "y"} {
		two += strings.ReplaceAll(one, "{", fmt.Sprintf(`{cluster="%s", `, name))
	}
	alone, both := newCluster(t, groups, one), newCluster(t, groups, two)
	alone.run(72 * time.Minute)
	both.run(72 * time.Minute)
	for _, group := range read(t, recording) {
		for _, rule := range group.Rules {
			want := alone.query("sum without () ("+rule.Record+")", 70*time.Minute)
			for _, name := range []string{"x", "y"} {
				got := both.query(fmt.Sprintf(`sum without (cluster) (%s{cluster="%s"})`, rule.Record, name), 70*time.Minute)
				if !slices.Equal(got, want) {
					t.Errorf("%s of cluster %s:\n got %s\nwant %s", rule.Record, name, got, want)
				}
			}
		}
	}
}

// A shared GPU is divided among its pods, each device of a MIG layout counts by its slices, and a model without a price
// of its own has the general one.
func TestShareAndPriceOfAGPU(t *testing.T) {
	t.Parallel()
	a30 := func(profile, pod string) string {
		labels := strings.NewReplacer("NVIDIA H100", "NVIDIA A30").Replace(card("hostname", 0, workload(pod,
			`, GPU_I_ID="`+pod+`", GPU_I_PROFILE="`+profile+`"`)))
		return series(labels, "0.5x20", "DCGM_FI_PROF_GR_ENGINE_ACTIVE")
	}
	text := a30("1g.6gb", "one") + a30("2g.12gb", "two") + a30("4g.24gb", "all")
	for profile, pod := range map[string]string{"1g.10gb+me": "s1", "2g.20gb": "s2", "4g.40gb": "s4", "7g.80gb": "s7"} {
		text += series(card("hostname", 1, workload(pod, `, GPU_I_ID="`+pod+`", GPU_I_PROFILE="`+profile+`"`)), "0.5x20",
			"DCGM_FI_PROF_GR_ENGINE_ACTIVE")
	}
	for vgpu, pod := range []string{"shared1", "shared2", "shared3", "shared4"} {
		text += series(card("hostname", 2, workload(pod, fmt.Sprintf(`, vgpu="%d"`, vgpu))), "60x20", "DCGM_FI_DEV_GPU_UTIL")
	}
	c := newCluster(t, append(priced(t), read(t, recording)...), text)
	c.run(12 * time.Minute)
	for pod, want := range map[string][2]float64{
		"one": {0.25, 0.5}, "two": {0.5, 1}, "all": {1, 2}, "s1": {1. / 7, 4. / 7}, "s2": {2. / 7, 8. / 7},
		"s4": {4. / 7, 16. / 7}, "s7": {1, 4}, "shared1": {0.25, 1}, "shared4": {0.25, 1},
	} {
		for i, metric := range []string{"share:ratio", "cost:per_hour"} {
			expression := fmt.Sprintf(`sum(gpu_workload:%s{pod="%s"})`, metric, pod)
			if got := c.query(expression, 10*time.Minute); !slices.Equal(got, []string{fmt.Sprintf("{} %.4g", want[i])}) {
				t.Errorf("%s is %s, want %.4g", expression, got, want[i])
			}
		}
	}
}

// A process of a shared GPU is compared with the memory of the GPU, not with its own part of it.
func TestMemoryOfProcesses(t *testing.T) {
	t.Parallel()
	text := series(card("hostname", 0, ""), "80x20", "DCGM_FI_DEV_FB_USED") +
		series(card("hostname", 0, ""), "0x20", "DCGM_FI_DEV_FB_FREE")
	for vgpu, pod := range []string{"one", "two"} {
		labels := card("hostname", 0, workload(pod, fmt.Sprintf(`, vgpu="%d"`, vgpu)))
		text += series(labels, "20x20", "DCGM_FI_DEV_FB_USED") + series(labels, "0x20", "DCGM_FI_DEV_FB_FREE")
	}
	c := newCluster(t, read(t, recording), text)
	c.run(12 * time.Minute)
	for expression, want := range map[string]string{
		`pod:gpu_memory_used:ratio{pod="one"}`: `{namespace="n", pod="one"} 0.25`, `node:gpu_memory_used:ratio`: `{node="a"} 1`,
	} {
		if got := c.query(expression, 10*time.Minute); !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %s, want %s", expression, got, want)
		}
	}
}

// Without a price there is no cost, and without an hour of use nothing is idle.
func TestNothingIsInvented(t *testing.T) {
	t.Parallel()
	c := newCluster(t, append(read(t, parameters), read(t, recording)...), node("4.8.3"))
	c.run(48 * time.Minute)
	for _, expression := range []string{
		"gpu_workload:cost:per_hour", "namespace:gpu_cost:per_hour", "namespace:gpu_idle_cost:per_hour", "gpu_workload:idle:bool",
	} {
		if got := c.query(expression, 50*time.Minute); got != nil {
			t.Errorf("%s is %s", expression, got)
		}
	}
}

// unitsOf49 are the metrics whose unit changed with 4.9.0: what one of the new unit is in the old one.
var unitsOf49 = map[string]float64{
	"DCGM_FI_DEV_SM_CLOCK": 1e-6, "DCGM_FI_DEV_MEM_CLOCK": 1e-6, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 1000,
	"DCGM_FI_DEV_GPU_UTIL": 100, "DCGM_FI_DEV_MEM_COPY_UTIL": 100, "DCGM_FI_DEV_ENC_UTIL": 100, "DCGM_FI_DEV_DEC_UTIL": 100,
	"DCGM_FI_DEV_FB_FREE": 1. / 1048576, "DCGM_FI_DEV_FB_USED": 1. / 1048576, "DCGM_FI_DEV_FB_RESERVED": 1. / 1048576,
	"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 1e-6,
}

// renamedOf49 pairs the names before and since 4.9.0: 22 metrics. The 23rd renamed field is the driver's version, a
// label.
var renamedOf49 = map[string]string{
	"DCGM_FI_DEV_SM_CLOCK": "DCGM_FI_DEV_SM_CLOCK_HERTZ", "DCGM_FI_DEV_MEM_CLOCK": "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ",
	"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
	"DCGM_FI_DEV_GPU_UTIL":                 "DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_DEV_MEM_COPY_UTIL": "DCGM_FI_DEV_MEMORY_UTIL_RATIO",
	"DCGM_FI_DEV_ENC_UTIL": "DCGM_FI_DEV_ENC_UTIL_RATIO", "DCGM_FI_DEV_DEC_UTIL": "DCGM_FI_DEV_DEC_UTIL_RATIO",
	"DCGM_FI_DEV_FB_FREE": "DCGM_FI_DEV_FB_FREE_BYTES", "DCGM_FI_DEV_FB_USED": "DCGM_FI_DEV_FB_USED_BYTES",
	"DCGM_FI_DEV_FB_RESERVED":            "DCGM_FI_DEV_FB_RESERVED_BYTES",
	"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",
	"DCGM_FI_DEV_GPU_TEMP":               "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "DCGM_FI_DEV_MEMORY_TEMP": "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS",
	"DCGM_FI_DEV_POWER_USAGE": "DCGM_FI_DEV_BOARD_POWER_WATTS", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "DCGM_FI_DEV_PCIE_REPLAY_TOTAL",
	"DCGM_FI_DEV_XID_ERRORS":                  "DCGM_FI_DEV_XID_ERROR",
	"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
	"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS":   "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL",
	"DCGM_FI_DEV_ROW_REMAP_FAILURE":           "DCGM_FI_DEV_ROW_REMAP_FAILED",
	"DCGM_FI_PROF_GR_ENGINE_ACTIVE":           "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
	"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE":         "DCGM_FI_PROF_TENSOR_UTIL_RATIO", "DCGM_FI_PROF_DRAM_ACTIVE": "DCGM_FI_PROF_DRAM_UTIL_RATIO",
}

// ofGuides are the aliases that do not depend on the release, and the metric that each is.
var ofGuides = map[string]string{
	"dcgm_gpu_utilization": "DCGM_FI_DEV_GPU_UTIL", "nvidia_gpu_utilization": "DCGM_FI_DEV_GPU_UTIL",
	"gpu_utilization_percent": "DCGM_FI_DEV_GPU_UTIL", "dcgm_gpu_temp": "DCGM_FI_DEV_GPU_TEMP",
	"dcgm_power_usage": "DCGM_FI_DEV_POWER_USAGE", "dcgm_sm_clock": "DCGM_FI_DEV_SM_CLOCK",
	"dcgm_fb_used": "DCGM_FI_DEV_FB_USED", "dcgm_fb_free": "DCGM_FI_DEV_FB_FREE",
	"DCGM_FI_DEV_GPU_MEMORY_USED": "DCGM_FI_DEV_FB_USED",
	"dcgm_dram_active":            "DCGM_FI_PROF_DRAM_ACTIVE",
	"dcgm_nvlink_bandwidth_total": "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
}

// Each alias has the value that the metric would have under its name, with a release before 4.9.0 and since.
func TestAliases(t *testing.T) {
	t.Parallel()
	groups := read(t, aliases)
	rules := 0
	for _, group := range groups {
		rules += len(group.Rules)
	}
	if len(renamedOf49) != 22 || len(unitsOf49) != 11 || rules != 22+len(ofGuides)+1 {
		t.Errorf("%d renamed, %d with another unit, %d rules", len(renamedOf49), len(unitsOf49), rules)
	}
	before, since := "", ""
	for metric, renamed := range renamedOf49 {
		unit := unitsOf49[metric]
		if unit == 0 {
			unit = 1
		}
		before += series(gpu, fmt.Sprintf("%gx10", 4096*unit), metric)
		since += series(gpu, "4096x10", renamed)
	}
	for name, text := range map[string]string{"before 4.9": before, "since 4.9": since} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, groups, text)
			c.run(4 * time.Minute)
			labels := `{UUID="GPU-1", gpu="0", hostname="a", instance="10.0.0.1:9400", modelName="NVIDIA H100"}`
			check := func(alias, metric string) {
				unit := unitsOf49[metric]
				if unit == 0 {
					unit = 1
				}
				want := []string{fmt.Sprintf("%s %.4g", labels, 4096*unit)}
				if got := c.query(alias, 5*time.Minute); !slices.Equal(got, want) {
					t.Errorf("%s is %s, want %s", alias, got, want)
				}
			}
			for metric := range renamedOf49 {
				check(metric, metric)
			}
			for alias, metric := range ofGuides {
				check(alias, metric)
			}
			third := []string{labels + " 0.3333"}
			if got := c.query("DCGM_FI_DEV_FB_USED_PERCENT", 5*time.Minute); !slices.Equal(got, third) {
				t.Errorf("DCGM_FI_DEV_FB_USED_PERCENT is %s", got)
			}
		})
	}
}

// OpenShift's names have the same units with each release.
func TestAcceleratorRecords(t *testing.T) {
	t.Parallel()
	groups := read(t, ofAccelerator)
	want := map[string]string{
		"accelerator_gpu_utilization": "60", "accelerator_memory_used_bytes": "1.049e+06",
		"accelerator_memory_total_bytes": "4.194e+06", "accelerator_power_usage_watts": "300",
		"accelerator_temperature_celsius": "50", "accelerator_sm_clock_hertz": "1.5e+09", "accelerator_memory_clock_hertz": "2e+09",
	}
	if got := len(groups[0].Rules); got != len(want) {
		t.Errorf("%d rules", got)
	}
	before := series(gpu, "60x10", "DCGM_FI_DEV_GPU_UTIL") + series(gpu, "1x10", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED") +
		series(gpu, "2x10", "DCGM_FI_DEV_FB_FREE") + series(gpu, "300x10", "DCGM_FI_DEV_POWER_USAGE") +
		series(gpu, "50x10", "DCGM_FI_DEV_GPU_TEMP") + series(gpu, "1500x10", "DCGM_FI_DEV_SM_CLOCK") +
		series(gpu, "2000x10", "DCGM_FI_DEV_MEM_CLOCK")
	since := series(gpu, "0.6x10", "DCGM_FI_DEV_GPU_UTIL_RATIO") + series(gpu, "1048576x10", "DCGM_FI_DEV_FB_USED_BYTES") +
		series(gpu, "4194304x10", "DCGM_FI_DEV_FB_CAPACITY_BYTES") + series(gpu, "300x10", "DCGM_FI_DEV_BOARD_POWER_WATTS") +
		series(gpu, "50x10", "DCGM_FI_DEV_GPU_TEMP_CELSIUS") + series(gpu, "1500000000x10", "DCGM_FI_DEV_SM_CLOCK_HERTZ") +
		series(gpu, "2000000000x10", "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ")
	for name, text := range map[string]string{"before 4.9": before, "since 4.9": since} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, groups, text)
			c.run(4 * time.Minute)
			for record, value := range want {
				got := c.query("sum by (vendor) ("+record+")", 5*time.Minute)
				if want := []string{`{vendor="nvidia"} ` + value}; !slices.Equal(got, want) {
					t.Errorf("%s is %s, want %s", record, got, want)
				}
			}
		})
	}
}
