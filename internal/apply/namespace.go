package apply

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterpolicy/gpu-operator/internal/labels"
)

// namespaceDeadline is for the calls of one Privileged, which a pass waits for.
const namespaceDeadline = 3 * time.Second

// Namespace keeps the labels by which Pod Security Admission lets privileged pods into the operator's
// namespace. Calls must not overlap.
type Namespace struct {
	// Client writes.
	Client client.Client
	// Live reads from the API server: a cache of one object would hold up the start where reading it is
	// forbidden, and all but a few clusters do without these labels.
	Live client.Reader
	// Name of the namespace.
	Name string

	// released tells that nothing here is the operator's. Losing it costs a read.
	released bool
}

// Privileged makes the namespace carry the labels, whoever set others, or gives up those that the operator
// has set. It writes nothing if they are as they are to be. A namespace that may not be read is left alone
// where nothing is wanted of it. It fails if the API server takes more than 3 s.
func (n *Namespace) Privileged(ctx context.Context, wanted bool) error {
	if !wanted && n.released {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, namespaceDeadline)
	defer cancel()
	live := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	err := n.Live.Get(ctx, client.ObjectKey{Name: n.Name}, live)
	switch {
	case err != nil && !wanted && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)):
		n.released = true
		return nil
	case err != nil:
		return fmt.Errorf("reading Namespace %s for its Pod Security labels: %w", n.Name, err)
	case wanted && isPrivileged(live), !wanted && !labelledByUs(live):
		n.released = !wanted
		return nil
	}
	log.FromContext(ctx).Info("Labelling the namespace for Pod Security Admission", "namespace", n.Name, "privileged", wanted)
	if err := n.apply(ctx, wanted); err != nil {
		return fmt.Errorf("applying the Pod Security labels of Namespace %s: %w", n.Name, err)
	}
	n.released = !wanted
	return nil
}

// apply sets the labels, or none: what the field manager no longer applies is removed, unless another one
// has it, too.
func (n *Namespace) apply(ctx context.Context, wanted bool) error {
	intent := &unstructured.Unstructured{}
	intent.SetAPIVersion("v1")
	intent.SetKind("Namespace")
	intent.SetName(n.Name)
	if wanted {
		set := map[string]string{}
		for _, key := range labels.PodSecurity() {
			set[key] = labels.PodSecurityPrivileged
		}
		intent.SetLabels(set)
	}
	return n.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(intent), client.FieldOwner(labels.FieldOwner), client.ForceOwnership)
}

func isPrivileged(namespace *metav1.PartialObjectMetadata) bool {
	for _, key := range labels.PodSecurity() {
		if namespace.Labels[key] != labels.PodSecurityPrivileged {
			return false
		}
	}
	return true
}

// labelledByUs tells whether the operator's field manager holds one of the labels.
func labelledByUs(namespace *metav1.PartialObjectMetadata) bool {
	for _, entry := range namespace.ManagedFields {
		if entry.Manager != labels.FieldOwner || entry.Operation != metav1.ManagedFieldsOperationApply || entry.FieldsV1 == nil {
			continue
		}
		for _, key := range labels.PodSecurity() {
			if strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+key+`"`) {
				return true
			}
		}
	}
	return false
}
