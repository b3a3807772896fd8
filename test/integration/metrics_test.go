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

// metricsAreForReaders: the operator's metrics need a token whose account may get /metrics, as the shipped
// ClusterRole permits.
func (e *env) metricsAreForReaders() {
	address := freeAddress(e.t)
	e.run("--metrics-bind-address=" + address)
	reader, stranger := e.tokenOf("prometheus"), e.tokenOf("stranger")
	e.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus-reads-gpu-operator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "gpu-operator-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "prometheus"}},
	})
	scraper := unverified()
	e.answers(scraper, "https://"+address, http.StatusUnauthorized)
	e.Expect(scrape(scraper, "https://"+address, "made-up")).To(HaveField("Code", http.StatusUnauthorized))
	e.Expect(scrape(scraper, "https://"+address, stranger)).To(And(
		HaveField("Code", http.StatusForbidden), HaveField("Body", ContainSubstring("gpu-operator-metrics-reader"))))
	e.Eventually(func() (page, error) { return scrape(scraper, "https://"+address, reader) }).Should(And(
		HaveField("Code", http.StatusOK), HaveField("Body", ContainSubstring("controller_runtime_reconcile_total"))))
	inTheClear, err := scrape(scraper, "http://"+address, reader)
	e.Expect(inTheClear.Body).NotTo(ContainSubstring("controller_runtime"), "%v", err)

	mark := e.mark()
	for range 20 {
		e.Expect(scrape(scraper, "https://"+address, reader)).To(HaveField("Code", http.StatusOK))
	}
	e.Expect(len(e.operatorCalls(mark).Of("tokenreviews"))).To(BeNumerically("<=", 1), "reviews are cached")
}

// plainMetrics: for a Prometheus without a token.
func (e *env) plainMetrics() {
	address := freeAddress(e.t)
	e.run("--metrics-bind-address="+address, "--metrics-secure=false")
	e.answers(http.DefaultClient, "http://"+address, http.StatusOK)
}

// theCertificateOfTheMetricsIsRenewed: a mounted certificate is used, and reloaded when it changes, without a
// restart.
func (e *env) theCertificateOfTheMetricsIsRenewed() {
	address, dir := freeAddress(e.t), e.t.TempDir()
	trusted := func() *http.Client {
		certificate, key, err := cert.GenerateSelfSignedCertKey(metricsServer, nil, nil)
		e.Expect(err).NotTo(HaveOccurred())
		// Write the key first: a certificate with another key is refused, and the old pair stays.
		e.Expect(os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600)).To(Succeed())
		e.Expect(os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600)).To(Succeed())
		roots := x509.NewCertPool()
		e.Expect(roots.AppendCertsFromPEM(certificate)).To(BeTrue())
		return &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: metricsServer},
		}}
	}
	first := trusted()
	e.run("--metrics-bind-address="+address, "--metrics-cert-dir="+dir)
	e.answers(first, "https://"+address, http.StatusUnauthorized)
	second := trusted()
	e.answers(second, "https://"+address, http.StatusUnauthorized)
	_, err := scrape(first, "https://"+address, "")
	e.Expect(err).To(MatchError(ContainSubstring("certificate")))
}

// answers waits until the endpoint responds so to a request without a token: it starts some time after the health
// probes.
func (e *env) answers(client *http.Client, base string, code int) {
	e.t.Helper()
	e.Eventually(func() (page, error) { return scrape(client, base, "") }).
		Should(HaveField("Code", code))
}

// unverified returns a client as the ServiceMonitor configures it: the self-signed certificate cannot be verified.
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

// tokenOf creates an account and returns a token of it.
func (e *env) tokenOf(name string) string {
	e.t.Helper()
	e.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	config, err := e.cluster.ServiceAccountConfig(e.t.Context(), namespace, name)
	e.Expect(err).NotTo(HaveOccurred())
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
