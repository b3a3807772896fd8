package app

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestImpossibleNamespaces(t *testing.T) {
	g := NewWithT(t)
	g.Expect(checkNamespace("gpu-operator")).To(Succeed())
	g.Expect(checkNamespace("")).To(MatchError(ContainSubstring("OPERATOR_NAMESPACE is not set: set it to")))
	for _, namespace := range []string{
		"GPU_Operator", "a/b", "gpu-operator\n", "-", "default,kube-system", " gpu-operator",
	} {
		g.Expect(checkNamespace(namespace)).To(MatchError(And(HavePrefix("OPERATOR_NAMESPACE is "),
			ContainSubstring("can be no namespace"), ContainSubstring("set it to the namespace of the operator"))), namespace)
	}
}

func TestWrongNamespaces(t *testing.T) {
	resource := schema.GroupResource{Group: "apps", Resource: "daemonsets"}
	for name, test := range map[string]struct {
		namespace string
		get, list error
		want      string
	}{
		"the operator's": {namespace: "gpu-operator"},
		"none":           {namespace: "gpu-oprator", want: `is "gpu-oprator", and the cluster has no such namespace`},
		"without its Role": {namespace: "gpu-operator", list: apierrors.NewForbidden(resource, "", nil),
			want: "may not list DaemonSets"},
		"one that it may not get": {namespace: "gpu-operator",
			get: apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "gpu-operator", nil)},
		"an API server that fails": {namespace: "gpu-operator", get: errors.New("timeout"), list: errors.New("timeout")},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			live := fake.NewClientBuilder().WithObjects(
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gpu-operator"}},
			).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(
					ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption,
				) error {
					if test.get != nil {
						return test.get
					}
					return c.Get(ctx, key, object, opts...)
				},
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
					return test.list
				},
			}).Build()
			err := checkNamespaceExists(t.Context(), live, test.namespace)
			if test.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(And(ContainSubstring(test.want), ContainSubstring("set it to the namespace of"))))
		})
	}
}
