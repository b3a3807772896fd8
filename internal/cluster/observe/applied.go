package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/internal/names/digest"
	"github.com/clusterpolicy/gpu-operator/internal/names/labels"
)

// SpecID identifies a spec that was applied; the zero value is none.
type SpecID struct {
	// Generation of the policy. It increases with each edit of the spec, but not when an outdated CRD drops fields.
	Generation int64
	// Digest of the spec.
	Digest string
}

// SpecIDOf returns the identity of a policy's spec.
func SpecIDOf(policy *v1.ClusterPolicy) (SpecID, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&policy.Spec)
	if err != nil {
		return SpecID{}, fmt.Errorf("converting the spec of ClusterPolicy %s: %w", policy.Name, err)
	}
	// As a map, so that the order of fields in another release does not change the digest.
	data, err := json.Marshal(content)
	if err != nil {
		return SpecID{}, fmt.Errorf("encoding the spec of ClusterPolicy %s: %w", policy.Name, err)
	}
	return SpecID{Generation: policy.Generation, Digest: digest.Of(data)}, nil
}

// String returns the value of the annotation labels.AppliedSpec; empty for none.
func (a SpecID) String() string {
	if a.Digest == "" {
		return ""
	}
	return fmt.Sprintf("%d-%s", a.Generation, a.Digest)
}

// LastAppliedSpec returns the spec of the policy with this UID that was last applied, as recorded on a Service of the
// stack. If the policy was deleted with --cascade=orphan, it returns only the digest, because the generations of the
// next policy start at 1.
func LastAppliedSpec(ctx context.Context, reader client.Reader, namespace string, policy types.UID) (SpecID, error) {
	list := &corev1.ServiceList{}
	if err := reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return SpecID{}, fmt.Errorf("listing Services: %w", err)
	}
	for i := range list.Items {
		found, recorded := parseSpecID(list.Items[i].Annotations[labels.AppliedSpec])
		controller := metav1.GetControllerOfNoCopy(&list.Items[i])
		switch {
		case !recorded:
			continue
		case controller == nil:
			return SpecID{Digest: found.Digest}, nil
		case controller.UID == policy:
			return found, nil
		}
	}
	return SpecID{}, nil
}

func parseSpecID(text string) (SpecID, bool) {
	generation, sum, found := strings.Cut(text, "-")
	number, err := strconv.ParseInt(generation, 10, 64)
	return SpecID{Generation: number, Digest: sum}, found && err == nil && sum != ""
}
