package observe

import (
	"time"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

// UpgradePolicy returns an upgradePolicy that has its defaults, as the planner of driver upgrades reads it. A failed
// upgrade is tried again after retryAfter at first, and after maxRetryAfter at last.
func UpgradePolicy(spec v1.DriverUpgradePolicySpec, retryAfter, maxRetryAfter time.Duration) upgrade.Policy {
	return upgrade.Policy{
		Auto:               *spec.AutoUpgrade,
		Paused:             *spec.Paused,
		MaxParallel:        int(*spec.MaxParallelUpgrades),
		MaxUnavailable:     *spec.MaxUnavailable,
		PullImages:         *spec.PullImages,
		WaitsForJobs:       spec.WaitForCompletion.PodSelector != "",
		JobsTimeout:        seconds(spec.WaitForCompletion.TimeoutSeconds),
		PodDeletionTimeout: seconds(spec.PodDeletion.TimeoutSeconds),
		DrainTimeout:       seconds(spec.Drain.TimeoutSeconds),
		Drains:             *spec.Drain.Enable,
		PullTimeout:        seconds(spec.Timeouts.ImagePullSeconds),
		DriverTimeout:      seconds(spec.Timeouts.DriverSeconds),
		ValidationTimeout:  seconds(spec.Timeouts.ValidationSeconds),
		RetryAfter:         retryAfter,
		MaxRetryAfter:      maxRetryAfter,
	}
}

func seconds(timeout *v1.TimeoutSeconds) time.Duration { return time.Duration(*timeout) * time.Second }
