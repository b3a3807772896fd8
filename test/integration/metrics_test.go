package integration

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/clusterpolicy/gpu-operator/test/cluster"
)

const metricsServer = "gpu-operator.gpu-operator.svc"

// metricsAreForReaders: the operator's metrics need a token whose owner may get /metrics, as the shipped
// ClusterRole lets it. The API server judges.
func (b *bed) metricsAreForReaders() {
	address := freeAddress(b.t)
	b.run("--metrics-bind-address=" + address)
	reader, stranger := b.tokenOf("prometheus"), b.tokenOf("stranger")
	b.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus-reads-gpu-operator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "gpu-operator-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "prometheus"}},
	})
	scraper := unverified()
	b.answers(scraper, "https://"+address, http.StatusUnauthorized)
	b.Expect(scrape(scraper, "https://"+address, "made-up")).To(HaveField("Code", http.StatusUnauthorized))
	b.Expect(scrape(scraper, "https://"+address, stranger)).To(And(
		HaveField("Code", http.StatusForbidden), HaveField("Body", ContainSubstring("gpu-operator-metrics-reader"))))
	b.Eventually(func() (page, error) { return scrape(scraper, "https://"+address, reader) }).Should(And(
		HaveField("Code", http.StatusOK), HaveField("Body", ContainSubstring("controller_runtime_reconcile_total"))))
	inTheClear, err := scrape(scraper, "http://"+address, reader)
	b.Expect(inTheClear.Body).NotTo(ContainSubstring("controller_runtime"), "%v", err)

	mark := b.mark()
	for range 20 {
		b.Expect(scrape(scraper, "https://"+address, reader)).To(HaveField("Code", http.StatusOK))
	}
	b.Expect(len(b.operatorCalls(mark).Of("tokenreviews"))).To(BeNumerically("<=", 1), "answers are remembered")
}

// plainMetrics: for people whose Prometheus has no token.
func (b *bed) plainMetrics() {
	address := freeAddress(b.t)
	b.run("--metrics-bind-address="+address, "--metrics-secure=false")
	b.answers(http.DefaultClient, "http://"+address, http.StatusOK)
}

// theCertificateOfTheMetricsIsRenewed: a certificate that is mounted is used, and read again when it
// changes, without a restart.
func (b *bed) theCertificateOfTheMetricsIsRenewed() {
	address, dir := freeAddress(b.t), b.t.TempDir()
	trusted := func() *http.Client {
		certificate, key, err := cert.GenerateSelfSignedCertKey(metricsServer, nil, nil)
		b.Expect(err).NotTo(HaveOccurred())
		// The key first: a certificate with a key that does not fit is refused, and the old pair stays.
		b.Expect(os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600)).To(Succeed())
		b.Expect(os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600)).To(Succeed())
		roots := x509.NewCertPool()
		b.Expect(roots.AppendCertsFromPEM(certificate)).To(BeTrue())
		return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: metricsServer}}}
	}
	first := trusted()
	b.run("--metrics-bind-address="+address, "--metrics-cert-dir="+dir)
	b.answers(first, "https://"+address, http.StatusUnauthorized)
	second := trusted()
	b.answers(second, "https://"+address, http.StatusUnauthorized)
	_, err := scrape(first, "https://"+address, "")
	b.Expect(err).To(MatchError(ContainSubstring("certificate")))
}

// answers waits until the endpoint answers so to a request without a token: it comes up some time after the
// health probes.
func (b *bed) answers(client *http.Client, base string, code int) {
	b.t.Helper()
	b.Eventually(func() (page, error) { return scrape(client, base, "") }).
		Should(HaveField("Code", code))
}

// unverified is a client as the ServiceMonitor asks for: nobody vouches for a certificate that is made at each
// start.
func unverified() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
}

type page struct {
	Code int
	Body string
}

func scrape(client *http.Client, base, token string) (page, error) {
	request, err := http.NewRequest(http.MethodGet, base+"/metrics", nil)
	if err != nil {
		return page{}, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return page{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return page{response.StatusCode, string(body)}, err
}

// tokenOf makes an account and a token of it.
func (b *bed) tokenOf(name string) string {
	b.t.Helper()
	b.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	config, err := b.cluster.ServiceAccountConfig(b.t.Context(), namespace, name)
	b.Expect(err).NotTo(HaveOccurred())
	return config.BearerToken
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := cluster.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}
