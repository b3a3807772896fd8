package healthaction

import (
	"maps"
	"math"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/health/gpuhealth"
)

// Each dwell that the API server admits is as long as it is written, or as long as Go can have it: never shorter.
func TestDwellOfThePolicy(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0s": 0, "10m": 10 * time.Minute, "1h30m": 90 * time.Minute, "1s1s1s": 3 * time.Second,
		"999999h999999h999999h": math.MaxInt64,
	} {
		policy := PolicyOf(&v1.HealthActionsSpec{Dwell: text, MaxNodes: new(intstr.FromInt32(1))})
		if policy.Dwell == nil || *policy.Dwell != want {
			t.Errorf("%s: %v, want %v", text, policy.Dwell, want)
		}
	}
	if policy := PolicyOf(&v1.HealthActionsSpec{MaxNodes: new(intstr.FromInt32(1))}); policy.Dwell != nil {
		t.Errorf("without a dwell: %v, want the default", policy.Dwell)
	}
}

func TestActionsOfThePolicy(t *testing.T) {
	policy := PolicyOf(&v1.HealthActionsSpec{
		Reset: v1.HealthActionTaint, Reboot: v1.HealthActionCordon, Hardware: v1.HealthActionNone,
		MaxNodes: new(intstr.FromString("10%")),
	})
	want := map[gpuhealth.Class]v1.HealthAction{
		gpuhealth.Reset: v1.HealthActionTaint, gpuhealth.Reboot: v1.HealthActionCordon,
		gpuhealth.Hardware: v1.HealthActionNone,
	}
	if !maps.Equal(policy.Actions, want) || policy.MaxNodes != intstr.FromString("10%") {
		t.Errorf("got %+v", policy)
	}
}
