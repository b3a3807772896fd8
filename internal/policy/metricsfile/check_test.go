package metricsfile_test

import (
	"slices"
	"testing"

	"github.com/clusterpolicy/gpu-operator/internal/policy/metricsfile"
)

func TestCheck(t *testing.T) {
	const kinds = "use gauge, counter, histogram, summary, label"
	for name, test := range map[string]struct {
		content string
		want    []string
	}{
		"a metric": {"# comment\n\nDCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).\n", nil},
		"a text in quotes, and a label": {
			"DCGM_FI_DEV_GPU_TEMP, gauge, \"a, b\"\nDCGM_FI_DRIVER_VERSION, label, Version\n", nil,
		},
		"blanks around lines":                      {"  # comment\n \n\tDCGM_FI_DEV_GPU_TEMP, gauge, x\r\n\r\n", nil},
		"a field that this operator does not know": {"DCGM_FI_DEV_NEW_IN_DCGM_9, counter, x", nil},
		"profiling counters that differ by a digit": {
			"DCGM_FI_PROF_PIPE_FP64_ACTIVE, gauge, x\nDCGM_FI_DEV_ENC_UTIL, gauge, x\nDCGM_FI_DEV_DEC_UTIL, gauge, x", nil,
		},
		"counters that differ by a letter": {
			"DCGM_FI_PROF_PCIE_TX_BYTES, gauge, x\nDCGM_FI_PROF_PCIE_RX_BYTES, gauge, x", nil,
		},
		"a field that the exporter computes": {
			"DCGM_EXP_XID_ERRORS_COUNT, gauge, x\nDCGM_EXP_XID_ERROR_COUNT, gauge, x", []string{
				"line 2: DCGM_EXP_XID_ERROR_COUNT is no field of DCGM: use DCGM_EXP_XID_ERRORS_COUNT",
			},
		},
		"a wrong type": {"DCGM_FI_DEV_GPU_TEMP, gage, x", []string{"line 1: type gage is unknown: " + kinds}},
		"an unknown field": {"\nDCGM_FI_DEV_GPU_TEMPP, gauge, x", []string{
			"line 2: DCGM_FI_DEV_GPU_TEMPP is no field of DCGM: use DCGM_FI_DEV_GPU_TEMP",
		}},
		"a letter left out, and another one": {"DCGM_FI_DEV_GPU_TEM, gauge, x\nDCGM_FI_DEV_GPO_UTIL, gauge, x", []string{
			"line 1: DCGM_FI_DEV_GPU_TEM is no field of DCGM: use DCGM_FI_DEV_GPU_TEMP",
			"line 2: DCGM_FI_DEV_GPO_UTIL is no field of DCGM: use DCGM_FI_DEV_GPU_UTIL",
		}},
		"a slip in a profiling counter": {"DCGM_FI_PROF_DRAM_ACTIV, gauge, x", []string{
			"line 1: DCGM_FI_PROF_DRAM_ACTIV is no field of DCGM: use DCGM_FI_PROF_DRAM_ACTIVE",
		}},
		"another name": {"gpu_temp, gauge, x", []string{
			"line 1: gpu_temp is no field of DCGM: their names begin with DCGM_FI_ or DCGM_EXP_",
		}},
		"too few fields": {"DCGM_FI_DEV_GPU_TEMP, gauge", []string{
			"line 1: must have a field, a type and a text, separated by two commas",
		}},
		"nothing": {"# all is commented out", []string{
			"selects no metric: add lines with a field, a type and a text, separated by commas",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := metricsfile.Check(test.content); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
