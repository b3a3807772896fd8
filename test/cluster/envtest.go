package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// StartEnvtest starts only etcd and the API server, for suites that run controllers in their own process. RBAC is
// enabled, the kind ClusterPolicy is served and the namespace OperatorNamespace exists. No other controller runs:
// nothing creates the pods of a DaemonSet, collects garbage or empties a deleted namespace. Pods need no
// ServiceAccount.
//
// The release is the one that Start uses by default; missing programs are built. The context only limits the start.
// The configuration has all permissions and no client-side rate limit. stop ends both processes and removes their
// data, and is idempotent; it is nil on an error, after which nothing is left to stop.
func StartEnvtest(ctx context.Context) (cfg *rest.Config, stop func() error, err error) {
	root, err := repositoryRoot()
	if err != nil {
		return nil, nil, err
	}
	rel, err := findRelease(root, "")
	if err != nil {
		return nil, nil, err
	}
	rel.tools = rel.envtestTools()
	if err := rel.ensure(ctx, os.Stderr); err != nil {
		return nil, nil, err
	}
	c := &Cluster{release: rel, address: loopback, bare: true}
	if err := c.startEnvtest(ctx, filepath.Join(root, "config", "crd")); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start envtest: %w", err), c.Stop())
	}
	return c.Config, sync.OnceValue(c.Stop), nil
}

func (c *Cluster) startEnvtest(ctx context.Context, definitions string) error {
	if err := c.start(ctx, ""); err != nil {
		return err
	}
	if err := Install(ctx, c.Config, definitions); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: OperatorNamespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s: %w", OperatorNamespace, err)
	}
	return nil
}
