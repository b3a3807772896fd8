package nvidiadriver

import (
	"slices"
	"testing"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
)

// Drivers that differ in their upgrades alone differ, whichever of them comes first.
func TestDifferencesOfUpgrades(t *testing.T) {
	upgraded := func(automatically bool) effective.Spec {
		return effective.Of(v1.ClusterPolicySpec{Driver: &v1.DriverSpec{
			UpgradePolicy: &v1.DriverUpgradePolicySpec{AutoUpgrade: new(automatically)},
		}})
	}
	yes, no := driverOf(upgraded(true), nil), driverOf(upgraded(false), nil)
	if got := differences(yes, yes); len(got) > 0 {
		t.Errorf("a driver differs from itself in %v", got)
	}
	want := []string{"spec.driver.upgradePolicy.autoUpgrade"}
	for _, got := range [][]string{differences(yes, no), differences(no, yes)} {
		if !slices.Equal(got, want) {
			t.Errorf("the drivers differ in %v, want %v", got, want)
		}
	}
}
