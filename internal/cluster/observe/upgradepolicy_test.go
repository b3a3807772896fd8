package observe_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cluster/observe"
	"github.com/clusterpolicy/gpu-operator/internal/policy/effective"
	"github.com/clusterpolicy/gpu-operator/internal/upgrade"
)

func TestSelectorsOfUpgrades(t *testing.T) {
	for name, test := range map[string]struct {
		jobs, drain v1.PodSelector
		want        string
	}{
		"both":                 {"a=b", "c=d", ""},
		"neither":              {},
		"a wrong one of jobs":  {"a in", "c=d", "correct x.waitForCompletion.podSelector: "},
		"a wrong one of drain": {"a=b", "c in", "correct x.drain.podSelector: "},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			spec := effective.Of(v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UpgradePolicy: &v1.DriverUpgradePolicySpec{
				WaitForCompletion: &v1.WaitForCompletionSpec{PodSelector: test.jobs},
				Drain:             &v1.DrainSpec{PodSelector: test.drain},
			}}}).Driver.UpgradePolicy
			policy, err := observe.UpgradePodPolicy("gpu-operator", "x", spec)
			if test.want != "" {
				g.Expect(err).To(MatchError(HavePrefix(test.want)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(policy.Jobs != nil).To(Equal(test.jobs != ""))
			g.Expect(policy.DrainSelector != nil).To(Equal(test.drain != ""))
		})
	}
}

func TestUpgradePolicy(t *testing.T) {
	seconds := func(n int32) *v1.TimeoutSeconds { return new(v1.TimeoutSeconds(n)) }
	spec := func(on bool, selector string) v1.DriverUpgradePolicySpec {
		return *effective.Of(v1.ClusterPolicySpec{Driver: &v1.DriverSpec{UpgradePolicy: &v1.DriverUpgradePolicySpec{
			AutoUpgrade: &on, Paused: &on, MaxParallelUpgrades: new(int32(2)), MaxUnavailable: new(intstr.FromString("30%")),
			PullImages: &on, WaitForCompletion: &v1.WaitForCompletionSpec{PodSelector: selector, TimeoutSeconds: seconds(3)},
			PodDeletion: &v1.PodDeletionSpec{TimeoutSeconds: seconds(4)},
			Drain:       &v1.DrainSpec{Enable: &on, TimeoutSeconds: seconds(5)},
			Timeouts: &v1.UpgradeTimeoutsSpec{
				ImagePullSeconds: seconds(6), DriverSeconds: seconds(7), ValidationSeconds: seconds(8),
			},
		}}}).Driver.UpgradePolicy
	}
	want := upgrade.Policy{
		Auto: true, Paused: true, MaxParallel: 2, MaxUnavailable: intstr.FromString("30%"), PullImages: true,
		WaitsForJobs: true, JobsTimeout: 3 * time.Second, PodDeletionTimeout: 4 * time.Second,
		DrainTimeout: 5 * time.Second, Drains: true, PullTimeout: 6 * time.Second, DriverTimeout: 7 * time.Second,
		ValidationTimeout: 8 * time.Second, RetryAfter: time.Minute, MaxRetryAfter: time.Hour,
	}
	g := NewWithT(t)
	g.Expect(observe.UpgradePolicy(spec(true, "a=b"), time.Minute, time.Hour)).To(Equal(want))
	want.Auto, want.Paused, want.PullImages, want.Drains, want.WaitsForJobs = false, false, false, false, false
	g.Expect(observe.UpgradePolicy(spec(false, ""), time.Minute, time.Hour)).To(Equal(want))
}
