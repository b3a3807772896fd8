package otheroperator

import (
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// writes notices that NVIDIA's operator writes DaemonSets of the operator's namespace although no pod of it is found,
// as one that runs outside the cluster does. This operator never writes labels.NVIDIAHash. Objects that NVIDIA's
// operator left behind keep the value that they had when this process first saw them.
type writes struct {
	// hashes has the values of the DaemonSets, by UID; nil before the first ones are seen.
	hashes map[types.UID]string
	// last is the DaemonSet that was last written, and at when that was noticed; zero for never.
	last string
	at   time.Time
}

// note records the present values. Changes do not count if expected is true.
func (w *writes) note(daemonSets map[string]*appsv1.DaemonSet, expected bool, now time.Time) {
	before := w.hashes
	w.hashes = make(map[types.UID]string, len(daemonSets))
	if expected {
		w.last, w.at = "", time.Time{}
	}
	for _, name := range slices.Sorted(maps.Keys(daemonSets)) {
		ds := daemonSets[name]
		hash := ds.Annotations[labels.NVIDIAHash]
		w.hashes[ds.UID] = hash
		if before != nil && !expected && hash != "" && hash != before[ds.UID] {
			w.last, w.at = name, now
		}
	}
}

// message returns what was written, and the remedy.
func (w *writes) message(namespace string, quiet time.Duration) string {
	return fmt.Sprintf("DaemonSet %s in namespace %s got another annotation %s at %s, so NVIDIA's operator is at work, "+
		"although no pod of it is found: this operator changes nothing until %s have passed without that. "+
		"Stop NVIDIA's operator, or start this operator with --take-over",
		w.last, namespace, labels.NVIDIAHash, w.at.UTC().Format(time.RFC3339), quiet)
}
