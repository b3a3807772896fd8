package cluster

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestCluster runs all checks on one control plane, as starting it takes most of the time.
func TestCluster(t *testing.T) {
	c := startCluster(t, Options{})
	if err := Install(t.Context(), c.Config, filepath.Join("testdata", "install")); err != nil {
		t.Fatal(err)
	}
	t.Run("service account", func(t *testing.T) { checkServiceAccount(t, c) })
	t.Run("front", func(t *testing.T) { checkFront(t, c) })
	t.Run("freeze", func(t *testing.T) { checkFreeze(t, c) })
	t.Run("outage", func(t *testing.T) { checkOutage(t, c) })
}

func startCluster(t *testing.T, opts Options) *Cluster {
	t.Helper()
	if _, err := EnsureBinaries(t.Context(), opts.Version, os.Stderr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	c, err := Start(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Kubernetes %s was up in %s", c.Version, time.Since(begin).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// clientFor returns a client with the permissions of the installed ServiceAccount.
func clientFor(t *testing.T, c *Cluster, server string) kubernetes.Interface {
	t.Helper()
	path, err := c.ServiceAccountKubeconfig(t.Context(), OperatorNamespace, "operator", server)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(cfg)
}

func createConfigMap(t *testing.T, client kubernetes.Interface, name string) error {
	t.Helper()
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := client.CoreV1().ConfigMaps(OperatorNamespace).Create(t.Context(), obj, metav1.CreateOptions{})
	return err
}

// checkServiceAccount shows that RBAC applies and that the audit log records the user of each request.
func checkServiceAccount(t *testing.T, c *Cluster) {
	mark, err := c.Mark()
	if err != nil {
		t.Fatal(err)
	}
	client := clientFor(t, c, "")
	if err := createConfigMap(t, client, "allowed"); err != nil {
		t.Error(err)
	}
	_, err = client.CoreV1().Secrets(OperatorNamespace).List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("listing secrets: got error %v, want forbidden", err)
	}
	all, err := c.Since(mark)
	if err != nil {
		t.Fatal(err)
	}
	calls := all.By(ServiceAccountUser(OperatorNamespace, "operator"))
	if got, want := calls.Writes().String(), "     1 create configmaps gpu-operator/allowed 201\n"; got != want {
		t.Errorf("writes:\ngot  %q\nwant %q", got, want)
	}
	if got, want := calls.Forbidden().String(), "     1 list secrets gpu-operator 403\n"; got != want {
		t.Errorf("forbidden:\ngot  %q\nwant %q", got, want)
	}
}

// checkFront shows that a client reaches the API server through a front with its own permissions, until the front is
// closed.
func checkFront(t *testing.T, c *Cluster) {
	front, err := c.NewFront(func(target *url.URL, transport http.RoundTripper) http.Handler {
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.Transport = transport
		return proxy
	})
	if err != nil {
		t.Fatal(err)
	}
	client := clientFor(t, c, front.URL)
	if err := createConfigMap(t, client, "through-front"); err != nil {
		t.Error(err)
	}
	if _, err := client.CoreV1().Secrets(OperatorNamespace).List(
		t.Context(), metav1.ListOptions{},
	); !apierrors.IsForbidden(err) {
		t.Errorf("list secrets through the front: got error %v, want forbidden", err)
	}
	if err := front.Close(); err != nil {
		t.Error(err)
	}
	if err := createConfigMap(t, client, "after-front"); err == nil {
		t.Error("a write through a closed front: got no error")
	}
}

// checkFreeze shows that a frozen API server neither responds nor refuses connections, and continues after a thaw.
func checkFreeze(t *testing.T, c *Cluster) {
	maps := clientFor(t, c, "").CoreV1().ConfigMaps(OperatorNamespace)
	if err := c.FreezeAPIServer(); err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := maps.Get(limited, "allowed", metav1.GetOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a read during the freeze: got error %v, want a deadline error", err)
	}
	if err := c.ThawAPIServer(); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(t.Context(), "allowed", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// checkOutage shows that the API server restarts at the same address with the same data.
func checkOutage(t *testing.T, c *Cluster) {
	client := clientFor(t, c, "")
	c.KillAPIServer()
	// The connection is refused, or an old one breaks.
	var broken *net.OpError
	if err := createConfigMap(t, client, "during-outage"); !errors.As(err, &broken) {
		t.Errorf("a write during the outage: got error %v, want a connection error", err)
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps(OperatorNamespace).Get(
		t.Context(), "allowed", metav1.GetOptions{},
	); err != nil {
		t.Error(err)
	}
	if err := c.RestartClients(t.Context()); err != nil {
		t.Fatal(err)
	}
	const fresh = "after-outage"
	admin, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().Namespaces().Create(
		t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fresh}}, metav1.CreateOptions{},
	); err != nil {
		t.Fatal(err)
	}
	if err := wait.PollUntilContextTimeout(t.Context(), pollInterval, 20*time.Second, true, func(ctx context.Context) (
		bool, error,
	) {
		_, err := admin.CoreV1().ServiceAccounts(fresh).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	}); err != nil {
		t.Errorf("restarted controllers create no ServiceAccount: %v", err)
	}
}
