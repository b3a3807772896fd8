package app

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// setNamespace ends the messages about envNamespace.
const setNamespace = "set it to the namespace of the operator and its operands"

// checkNamespace fails if the value of envNamespace can be no namespace.
func checkNamespace(namespace string) error {
	if namespace == "" {
		return fmt.Errorf("%s is not set: %s", envNamespace, setNamespace)
	}
	if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
		return fmt.Errorf("%s is %q, which can be no namespace (%s): %s", envNamespace, namespace,
			strings.Join(wrong, "; "), setNamespace)
	}
	return nil
}

// checkNamespaceExists fails if the cluster has no such namespace, or if the operator has no rights there. Without
// this, the caches would try again for ever. Other failures of the calls are left to the caches.
func checkNamespaceExists(ctx context.Context, live client.Reader, namespace string) error {
	err := live.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s is %q, and the cluster has no such namespace: %s", envNamespace, namespace, setNamespace)
	}
	err = live.List(ctx, &appsv1.DaemonSetList{}, client.InNamespace(namespace), client.Limit(1))
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s is %q, where the operator may not list DaemonSets: %s, where its Role is installed: %w",
			envNamespace, namespace, setNamespace, err)
	}
	return nil
}
