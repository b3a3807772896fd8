package metricsfile

import (
	"encoding/csv"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/text"
)

// maxProblems bounds what is returned for one file, and maxValue what is quoted of it.
const (
	maxProblems = 4
	maxValue    = 64
)

// fieldName is the form of the names of fields: those of DCGM, and those that the exporter computes.
var fieldName = regexp.MustCompile(`^DCGM_(FI|EXP)_[A-Z0-9_]+$`)

// kinds are the types of metrics.
var kinds = []string{"gauge", "counter", "histogram", "summary", "label"}

// Check returns why the exporter would end at its start, or leave out a metric: a sentence for each line, at most 4.
// Whether a release of DCGM has a field is not known here, except for names that look like a slip in a common one.
func Check(content string) []string {
	var found []string
	metrics := 0
	for i, line := range strings.Split(content, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		metrics++
		if problem := checkLine(line); problem != "" {
			found = append(found, fmt.Sprintf("line %d: %s", i+1, problem))
		}
	}
	if metrics == 0 {
		found = append(found, "selects no metric: add lines with a field, a type and a text, separated by commas")
	}
	return found[:min(len(found), maxProblems)]
}

func checkLine(line string) string {
	reader := csv.NewReader(strings.NewReader(line))
	reader.TrimLeadingSpace = true
	record, err := reader.Read()
	if err != nil || len(record) != 3 {
		return "must have a field, a type and a text, separated by two commas"
	}
	name, kind := strings.TrimSpace(record[0]), strings.TrimSpace(record[1])
	if !fieldName.MatchString(name) {
		return fmt.Sprintf("%s is no field of DCGM: their names begin with DCGM_FI_ or DCGM_EXP_",
			text.Truncate(name, maxValue))
	}
	if meant := slipOf(name); meant != "" {
		return fmt.Sprintf("%s is no field of DCGM: use %s", name, meant)
	}
	if !slices.Contains(kinds, kind) {
		return fmt.Sprintf("type %s is unknown: use %s", text.Truncate(kind, maxValue), strings.Join(kinds, ", "))
	}
	return ""
}

// slipOf returns the common field that a name which is none differs from by one character; empty for other names.
func slipOf(name string) string {
	fields := commonFields()
	if slices.Contains(fields, name) {
		return ""
	}
	for _, field := range fields {
		if isOneApart(name, field) {
			return field
		}
	}
	return ""
}

// isOneApart reports whether two different texts differ by one character that is added, left out or replaced.
func isOneApart(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 {
		return false
	}
	same := 0
	for same < len(a) && a[same] == b[same] {
		same++
	}
	if len(a) == len(b) {
		return same < len(a) && a[same+1:] == b[same+1:]
	}
	return a[same:] == b[same+1:]
}

// commonFields are those of the exporter's own files, also those that are commented out there.
func commonFields() []string {
	var fields []string
	add := func(prefix string, names string) {
		for name := range strings.FieldsSeq(names) {
			fields = append(fields, prefix+name)
		}
	}
	add("DCGM_FI_DEV_", "SM_CLOCK MEM_CLOCK GPU_TEMP MEMORY_TEMP POWER_USAGE TOTAL_ENERGY_CONSUMPTION "+
		"PCIE_REPLAY_COUNTER "+
		"GPU_UTIL MEM_COPY_UTIL ENC_UTIL DEC_UTIL XID_ERRORS FB_FREE FB_USED FB_RESERVED FB_TOTAL FB_USED_PERCENT "+
		"NVLINK_BANDWIDTH_TOTAL VGPU_LICENSE_STATUS UNCORRECTABLE_REMAPPED_ROWS CORRECTABLE_REMAPPED_ROWS "+
		"ROW_REMAP_FAILURE POWER_VIOLATION THERMAL_VIOLATION SYNC_BOOST_VIOLATION BOARD_LIMIT_VIOLATION LOW_UTIL_VIOLATION "+
		"RELIABILITY_VIOLATION ECC_SBE_VOL_TOTAL ECC_DBE_VOL_TOTAL ECC_SBE_AGG_TOTAL ECC_DBE_AGG_TOTAL RETIRED_SBE "+
		"RETIRED_DBE RETIRED_PENDING")
	add("DCGM_FI_PROF_", "GR_ENGINE_ACTIVE PIPE_TENSOR_ACTIVE DRAM_ACTIVE PCIE_TX_BYTES PCIE_RX_BYTES NVLINK_TX_BYTES "+
		"NVLINK_RX_BYTES SM_ACTIVE SM_OCCUPANCY PIPE_FP64_ACTIVE PIPE_FP32_ACTIVE PIPE_FP16_ACTIVE")
	add("DCGM_EXP_", "XID_ERRORS_COUNT CLOCK_EVENTS_COUNT GPU_HEALTH_STATUS P2P_STATUS")
	return append(fields, "DCGM_FI_DRIVER_VERSION")
}
