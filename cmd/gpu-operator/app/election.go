package app

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterpolicy/gpu-operator/internal/kube/leadership"
)

// A leader that has not renewed its lease for the renew deadline exits, and writes nothing from then on. The lease is
// valid for leaseMargin longer, so that no other replica leads by then. The leader renews every retryPeriod.
const (
	defaultRenewDeadline = 10 * time.Second
	leaseMargin          = 5 * time.Second
	retryPeriod          = 2 * time.Second
	// minRenewDeadline leaves time for a second attempt; client-go adds up to 20% to retryPeriod.
	minRenewDeadline = 2 * retryPeriod
)

// Flags of the leader election that error messages name.
const flagRenewDeadline = "leader-lease-renew-deadline"

// Leader election needs its lease, and records a change of leader in an Event, which the rights of package events
// cover. No such Event repeats for the same leader, so none is ever aggregated.
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=gpu-operator,resources=leases,verbs=get;create;update

// electionOptions configures leader election.
type electionOptions struct {
	enabled       bool
	namespace     string
	renewDeadline time.Duration
}

func (o *electionOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.enabled, "leader-elect", false,
		"reconcile only while holding the leader lease; required to run more than one replica")
	flags.StringVar(&o.namespace, "leader-elect-namespace", "",
		"namespace of the leader lease, in which the operator needs permission to get, create and update leases "+
			"(default: that of the operator)")
	flags.DurationVar(&o.renewDeadline, flagRenewDeadline, 0, fmt.Sprintf(
		"how long the leader tries to renew its lease before it exits; the lease is valid for %s longer (default %s)",
		leaseMargin, defaultRenewDeadline))
}

// complete fills in the defaults. It fails for a deadline at which every leader would exit.
func (o *electionOptions) complete(operatorNamespace string) error {
	if o.namespace == "" {
		o.namespace = operatorNamespace
	}
	if o.renewDeadline == 0 {
		o.renewDeadline = defaultRenewDeadline
	}
	if o.renewDeadline < minRenewDeadline {
		return fmt.Errorf("--%s=%s is too short, as the lease is renewed every %s: set at least %s, or 0 for %s",
			flagRenewDeadline, o.renewDeadline, retryPeriod, minRenewDeadline, defaultRenewDeadline)
	}
	return nil
}

func (o *electionOptions) lease() types.NamespacedName {
	return types.NamespacedName{Namespace: o.namespace, Name: leadership.LeaseName}
}

// configure sets the options of the manager.
func (o *electionOptions) configure(options *ctrl.Options) {
	options.LeaderElection = o.enabled
	options.LeaderElectionID = leadership.LeaseName
	options.LeaderElectionNamespace = o.namespace
	options.LeaderElectionReleaseOnCancel = true
	options.LeaseDuration = new(o.renewDeadline + leaseMargin)
	options.RenewDeadline = new(o.renewDeadline)
	options.RetryPeriod = new(retryPeriod)
}
