package overview_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/cli/overview"
)

// A layout that nothing has applied is not shown like one that is.
func TestMIGText(t *testing.T) {
	g := NewWithT(t)
	text := func(layout, state string) string {
		return (&overview.Node{MIG: &overview.MIG{Layout: layout, State: state}}).MIGText()
	}
	g.Expect((&overview.Node{}).MIGText()).To(BeEmpty())
	g.Expect(text("all-1g.10gb", "")).To(Equal("all-1g.10gb (not applied)"))
	g.Expect(text("all-1g.10gb", "success")).To(Equal("all-1g.10gb"))
	g.Expect(text("all-1g.10gb", "failed")).To(Equal("all-1g.10gb (failed)"))
	g.Expect(text("all-disabled", "success")).To(BeEmpty())
	g.Expect(text("all-disabled", "")).To(BeEmpty(), "no GPU is divided, so that nothing is to be applied")
	g.Expect(text("all-disabled", "failed")).To(Equal("all-disabled (failed)"))
}

// Of a node, what is not known is empty, and what is not a whole GPU has the name of its resource.
func TestTextsOfANode(t *testing.T) {
	g, now, five := NewWithT(t), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), int64(5)
	since := metav1.NewTime(now.Add(-90 * time.Second))
	n := overview.Node{
		Since: &since, GPUs: overview.GPUs{Total: 8, Usable: 7}, Upgrade: "drain-required",
		Resources: []overview.Resource{
			{Name: "nvidia.com/gpu", Allocatable: 7}, {Name: "nvidia.com/mig-1g.10gb", Allocatable: 7, Free: &five},
		},
	}
	texts := func(n overview.Node) []string {
		return []string{n.UsableText(), n.FreeText(), n.UpgradeText(), n.SinceText(now)}
	}
	g.Expect(texts(n)).To(Equal([]string{"7/8", "?, 5 mig-1g.10gb", "drain-required", "90s"}))
	g.Expect(texts(overview.Node{})).To(Equal([]string{"", "", "", ""}))
	n.ByClaims, n.Upgrade = true, "upgrade-done"
	g.Expect(texts(n)).To(Equal([]string{"7/8", "by claims", "", "90s"}))
}

// An excluded node is not meant to be ready.
func TestUnready(t *testing.T) {
	g, all := NewWithT(t), []overview.Node{{Ready: "True"}, {Ready: "False"}, {Ready: "Unknown"}, {Ready: "Excluded"}}
	g.Expect(overview.Unready(all)).To(Equal(all[1:3]))
	g.Expect(all[0].Ready).To(Equal(overview.Ready), "the list is not changed")
}

// An upgrade is shown while a node is left, or one has failed.
func TestIsUpgrading(t *testing.T) {
	for name, test := range map[string]struct {
		upgrade *v1.UpgradeStatus
		want    bool
	}{
		"none":        {},
		"done":        {&v1.UpgradeStatus{Done: 2, Held: 1}, false},
		"pending":     {&v1.UpgradeStatus{Pending: 1}, true},
		"in progress": {&v1.UpgradeStatus{InProgress: 1}, true},
		"failed":      {&v1.UpgradeStatus{Failed: 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect((&overview.Policy{Upgrade: test.upgrade}).IsUpgrading()).To(Equal(test.want))
		})
	}
}
