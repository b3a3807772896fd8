package nvidiadriver

import (
	"regexp"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/names/digest"
)

// maxPoolName is how long the name of a node pool may be.
const maxPoolName = 40

// validPoolName matches the names of node pools.
var validPoolName = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

// PoolName returns the name of the node pool of an object: the object's name if it is valid for a node pool. If it is
// too long, contains dots or starts with a digit, the name has a digest of it instead.
func PoolName(object string) string {
	if len(object) <= maxPoolName && validPoolName.MatchString(object) {
		return object
	}
	end := "-" + digest.Of(object)
	start := strings.ReplaceAll(object, ".", "-")
	if !strings.ContainsAny(start[:min(1, len(start))], "abcdefghijklmnopqrstuvwxyz") {
		start = "driver-" + start
	}
	return strings.TrimRight(start[:min(len(start), maxPoolName-len(end))], "-") + end
}
