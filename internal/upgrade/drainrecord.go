package upgrade

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// DrainState is how far the drain of a node for a MIG layout has got.
type DrainState string

// The states in their order. Each but the last two ends early once no pod uses the GPUs.
const (
	// DrainJobs: the node is cordoned, and pods that waitForCompletion selects still run.
	DrainJobs DrainState = "waits-for-jobs"
	// DrainUsers: the pods that use GPUs are evicted.
	DrainUsers DrainState = "evicts-users"
	// DrainAll: all pods are evicted, since the eviction of those with GPUs took too long.
	DrainAll DrainState = "evicts-all"
	// DrainChanging: the layout is requested, and the MIG manager has not reported an outcome.
	DrainChanging DrainState = "changing"
	// DrainFailed: a deadline has passed, a pod with GPUs may not be evicted, or another client has uncordoned the node.
	// This operator's cordon is undone.
	DrainFailed DrainState = "failed"
)

// InProgress reports whether the node is drained, or its layout is being changed.
func (s DrainState) InProgress() bool { return s != DrainFailed }

// known reports whether this operator writes the state.
func (s DrainState) known() bool { return s.Evicts() || s == DrainChanging || s == DrainFailed }

// Evicts reports whether the layout is not requested yet.
func (s DrainState) Evicts() bool { return s == DrainJobs || s == DrainUsers || s == DrainAll }

// Drain is what the annotation labels.MIGDrain of a Node has while the node is drained for a MIG layout, and after that
// has failed.
type Drain struct {
	// UID of the Node. A record with another one was copied from a deleted Node and is ignored.
	UID   types.UID  `json:"uid"`
	State DrainState `json:"state"`
	// Layout that the node is drained for.
	Layout string `json:"layout"`
	// Granted is when the node got the slot with which the drain began: it identifies the slot.
	Granted time.Time `json:"granted"`
	// Since is when the State was entered.
	Since time.Time `json:"since"`
	// Cordoned: this operator has cordoned the node, so it also uncordons it.
	Cordoned bool `json:"cordoned,omitempty"`
	// Message is what blocks the evictions, or why the drain has failed; empty if nothing does.
	Message string `json:"message,omitempty"`
	// Failures is how many drains in a row have failed, but for those that another client has stopped, and RetryAt when
	// the next one begins; zero for never by time.
	Failures int       `json:"failures,omitempty"`
	RetryAt  time.Time `json:"retryAt,omitzero"`
}

// Cordons reports whether this operator has cordoned the Node with the UID.
func (d *Drain) Cordons(uid types.UID) bool { return d != nil && d.UID == uid && d.Cordoned }

// slot is the slot with which the drain began.
func (d *Drain) slot() Slot { return Slot{UID: d.UID, Layout: d.Layout, Since: d.Granted, Evict: true} }
