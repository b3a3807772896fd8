package cluster_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/clusterpolicy/gpu-operator/api/v1"
	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

func TestStartEnvtest(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "StartEnvtest")
}

var _ = Describe("StartEnvtest", Ordered, func() {
	var (
		cfg  *rest.Config
		stop func() error
	)

	BeforeAll(func(ctx SpecContext) {
		begin := time.Now()
		var err error
		cfg, stop, err = cluster.StartEnvtest(ctx)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { return stop() })
		GinkgoWriter.Printf("etcd and API server were up in %s\n", time.Since(begin).Round(time.Millisecond))
	})

	It("stores a ClusterPolicy", func(ctx SpecContext) {
		c := newClient(cfg)
		policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "stored"}}
		Expect(c.Create(ctx, policy)).To(Succeed())
		Expect(c.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
		Expect(policy.Generation).To(Equal(int64(1)))
	})

	It("refuses a ClusterPolicy that its schema forbids", func(ctx SpecContext) {
		policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}
		policy.Spec.Driver = &v1.DriverSpec{KernelModuleType: "closed"}
		err := newClient(cfg).Create(ctx, policy)
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("spec.driver.kernelModuleType")))
	})

	It("takes pods in the operator's namespace, without a ServiceAccount", func(ctx SpecContext) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: cluster.OperatorNamespace},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "pause", Image: "pause"}}},
		}
		Expect(newClient(cfg).Create(ctx, pod)).To(Succeed())
	})

	It("denies everything to a user without roles", func(ctx SpecContext) {
		limited := rest.CopyConfig(cfg)
		limited.Impersonate.UserName = cluster.ServiceAccountUser(cluster.OperatorNamespace, "anyone")
		err := newClient(limited).List(ctx, &corev1.NodeList{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	})

	It("lets a suite count and fail calls", func(ctx SpecContext) {
		var calls atomic.Int32
		counted := rest.CopyConfig(cfg)
		counted.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodDelete && calls.Add(1) == 1 {
					return nil, context.DeadlineExceeded
				}
				return next.RoundTrip(r)
			})
		})
		c := newClient(counted)
		policy := &v1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "stored"}}
		Expect(c.Delete(ctx, policy)).To(MatchError(context.DeadlineExceeded))
		Expect(c.Delete(ctx, policy)).To(Succeed())
		Expect(calls.Load()).To(Equal(int32(2)))
	})

	It("leaves no process behind", func() {
		Expect(children()).To(ConsistOf(HaveSuffix("/etcd"), HaveSuffix("/kube-apiserver")))
		Expect(stop()).To(Succeed())
		Expect(children()).To(BeEmpty())
		Expect(stop()).To(Succeed(), "stopping again changes nothing")
	})

	It("leaves no process behind when its start is cancelled", func(ctx SpecContext) {
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		_, _, err := cluster.StartEnvtest(cancelled)
		Expect(err).To(MatchError(context.Canceled))
		Expect(children()).To(BeEmpty())
	})

	It("runs the programs in KUBEBUILDER_ASSETS", func(ctx SpecContext) {
		assets := GinkgoT().TempDir()
		GinkgoT().Setenv(cluster.AssetsVariable, assets)
		_, _, err := cluster.StartEnvtest(ctx)
		Expect(err).To(MatchError(ContainSubstring(filepath.Join(assets, "etcd"))), "the folder is empty")
	})
})

// roundTripper implements http.RoundTripper by a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newClient(cfg *rest.Config) client.Client {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1.AddToScheme(scheme)).To(Succeed())
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// children returns the child processes of this process, from /proc.
func children() []string {
	GinkgoHelper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	Expect(err).NotTo(HaveOccurred())
	if len(stats) == 0 {
		Skip("needs /proc")
	}
	var programs []string
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			// It has exited meanwhile.
			continue
		}
		// The format is PID (NAME) STATE PPID; the name may have spaces.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		program, err := os.Readlink(filepath.Join(filepath.Dir(path), "exe"))
		Expect(err).NotTo(HaveOccurred())
		programs = append(programs, program)
	}
	return programs
}
