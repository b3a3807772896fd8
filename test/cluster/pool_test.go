package cluster

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
)

// TestPool: whatever a test does to the objects of a control plane, the next test gets it as after the installation.
func TestPool(t *testing.T) {
	SkipInSample(t)
	t.Parallel()
	ctrl.SetLogger(logr.Discard())
	pool := &Pool{Folder: filepath.Join("testdata", "install")}
	t.Cleanup(func() {
		if err := pool.Stop(); err != nil {
			t.Error(err)
		}
	})
	var first *Cluster
	var before map[string]string
	t.Run("a test alters it", func(t *testing.T) {
		first = pool.Lend(t, "")
		var err error
		if before, err = Snapshot(t.Context(), first.SimulatorConfig); err != nil {
			t.Fatal(err)
		}
		alter(t, kubernetes.NewForConfigOrDie(first.SimulatorConfig))
	})
	t.Run("the next one has it as before", func(t *testing.T) {
		again := pool.Lend(t, "")
		if again != first {
			t.Fatal("another control plane was started")
		}
		if err := AwaitSnapshot(t.Context(), again.SimulatorConfig, before); err != nil {
			t.Fatal(err)
		}
		client := kubernetes.NewForConfigOrDie(again.SimulatorConfig)
		checkHeartbeat(t, client)
		events, err := client.CoreV1().Events(OperatorNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(events.Items) > 0 {
			t.Errorf("got %d Events, %v, want none", len(events.Items), err)
		}
	})
	t.Run("two tests have two", func(t *testing.T) {
		one, another := pool.Lend(t, ""), pool.Lend(t, "")
		if one == another {
			t.Error("got the same control plane twice")
		}
	})
}

// alter creates objects, of which one has a finalizer, and changes and deletes objects of the installation.
func alter(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx := t.Context()
	// The admission of pods waits for the account of a new namespace.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	_, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	must(t, err)
	checkHeartbeat(t, client)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/held"}},
		Spec: corev1.PodSpec{
			NodeName: "gpu", Containers: []corev1.Container{{Name: "main", Image: "example.com/a"}},
		},
	}
	_, err = client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{})
	must(t, err)
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "noticed"},
		InvolvedObject: corev1.ObjectReference{Namespace: OperatorNamespace, Kind: "Pod", Name: "x"},
	}
	_, err = client.CoreV1().Events(OperatorNamespace).Create(ctx, event, metav1.CreateOptions{})
	must(t, err)
	label := []byte(`{"metadata":{"labels":{"example.com/altered":"true"}}}`)
	_, err = client.CoreV1().Namespaces().Patch(ctx, OperatorNamespace, types.MergePatchType, label, metav1.PatchOptions{})
	must(t, err)
	roles, err := client.RbacV1().Roles(OperatorNamespace).List(ctx, metav1.ListOptions{})
	must(t, err)
	if len(roles.Items) == 0 {
		t.Fatal("the installation has no Role")
	}
	must(t, client.RbacV1().Roles(OperatorNamespace).Delete(ctx, roles.Items[0].Name, metav1.DeleteOptions{}))
	must(t, client.CoreV1().ServiceAccounts(OperatorNamespace).Delete(ctx, "operator", metav1.DeleteOptions{}))
	if err := client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, "held", metav1.DeleteOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// checkHeartbeat creates a node and awaits that kwok renews its Lease, without which it is soon not ready.
func checkHeartbeat(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "gpu", Annotations: map[string]string{SimulatedNodeAnnotation: SimulatedNodeValue},
	}}
	node, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	must(t, err)
	var last *metav1.MicroTime
	renewed := func(ctx context.Context) (bool, error) {
		lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != node.UID {
			return false, nil
		}
		before := last
		last = lease.Spec.RenewTime
		return before != nil && before.Before(last), nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), time.Second, time.Minute, true, renewed); err != nil {
		t.Fatalf("the Lease of the node is not renewed: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
