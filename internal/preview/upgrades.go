package preview

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/clusterpolicy/gpu-operator/internal/plan"
)

// Upgrades are the driver upgrades that would follow.
type Upgrades struct{}

func upgradesOf(c *Cluster, p plan.Plan, rendered map[string]*appsv1.DaemonSet, now time.Time) (Upgrades, error) {
	return Upgrades{}, nil
}
