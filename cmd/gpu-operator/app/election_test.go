package app

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
)

func TestElectionFlags(t *testing.T) {
	type want struct {
		Enabled         bool
		Namespace       string
		Deadline, Lease time.Duration
	}
	for args, want := range map[string]want{
		"":               {Namespace: "gpu-operator", Deadline: 10 * time.Second, Lease: 15 * time.Second},
		"--leader-elect": {Enabled: true, Namespace: "gpu-operator", Deadline: 10 * time.Second, Lease: 15 * time.Second},
		"--leader-elect --leader-elect-namespace=leases": {
			Enabled: true, Namespace: "leases", Deadline: 10 * time.Second, Lease: 15 * time.Second,
		},
		"--leader-elect --leader-lease-renew-deadline=60s": {
			Enabled: true, Namespace: "gpu-operator", Deadline: time.Minute, Lease: 65 * time.Second,
		},
		"--leader-lease-renew-deadline=0": {Namespace: "gpu-operator", Deadline: 10 * time.Second, Lease: 15 * time.Second},
	} {
		t.Run(args, func(t *testing.T) {
			g := NewWithT(t)
			election, err := parseElection(args)
			g.Expect(err).NotTo(HaveOccurred())
			options := ctrl.Options{}
			election.configure(&options)
			g.Expect(options.LeaderElection).To(Equal(want.Enabled))
			g.Expect(options.LeaderElectionNamespace).To(Equal(want.Namespace))
			g.Expect(*options.RenewDeadline).To(Equal(want.Deadline))
			g.Expect(*options.LeaseDuration).To(Equal(want.Lease))
			g.Expect(election.lease().String()).To(Equal(want.Namespace+"/"+options.LeaderElectionID),
				"the guard observes the lease of the election")
			g.Expect(election.renewDeadline).To(Equal(want.Deadline), "the deadline of the guard")
		})
	}
}

func TestTooShortRenewDeadline(t *testing.T) {
	for _, deadline := range []string{"3s", "-1s"} {
		_, err := parseElection("--leader-lease-renew-deadline=" + deadline)
		NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring(deadline+" is too short"),
			ContainSubstring("set at least 4s, or 0 for 10s"))))
	}
}

func parseElection(args string) (*electionOptions, error) {
	o, flags := &electionOptions{}, pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addFlags(flags)
	if err := flags.Parse(strings.Fields(args)); err != nil {
		return nil, err
	}
	return o, o.complete("gpu-operator")
}
