package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// The users of the token file. The audit policy names all but the first.
const (
	userAdmin             = "admin"
	userSimulator         = "simulator"
	userControllerManager = "system:kube-controller-manager"
	userScheduler         = "system:kube-scheduler"
	userKwok              = "kwok"
	userKubelet           = "kubelet"
)

var users = []string{userAdmin, userSimulator, userControllerManager, userScheduler, userKwok, userKubelet}

// kubeconfigNames are the file names of the users, without a colon. The scheduler's is also in
// manifests/scheduler.yaml.
var kubeconfigNames = map[string]string{
	userAdmin:             "admin",
	userSimulator:         "simulator",
	userControllerManager: "controller-manager",
	userScheduler:         "scheduler",
	userKwok:              "kwok",
	userKubelet:           "kubelet",
}

// Files in the cluster's folder, where the processes run. envtest uses certificates by these names instead of
// generating its own.
const (
	servingCert       = "apiserver.crt"
	servingKey        = "apiserver.key"
	serviceAccountKey = "service-account.key"
	tokenFile         = "tokens.csv"
)

// credentials authenticate the parts of one cluster to each other. They last for the lifetime of the cluster.
type credentials struct {
	ca     []byte
	tokens map[string]string
}

// newCredentials creates keys and tokens in dir, for an API server at the address.
func newCredentials(dir string, address netip.Addr) (*credentials, error) {
	certPEM, keyPEM, err := servingCertificate(address)
	if err != nil {
		return nil, err
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate service account key: %w", err)
	}
	signerPEM, err := keyutil.MarshalPrivateKeyToPEM(signer)
	if err != nil {
		return nil, fmt.Errorf("encode service account key: %w", err)
	}
	c := &credentials{ca: certPEM, tokens: make(map[string]string, len(users))}
	var tokens []byte
	for _, user := range users {
		c.tokens[user] = uuid.NewString()
		tokens = fmt.Appendf(tokens, "%s,%s,%s,system:masters\n", c.tokens[user], user, kubeconfigNames[user])
	}
	files := map[string][]byte{
		servingCert:       certPEM,
		servingKey:        keyPEM,
		serviceAccountKey: signerPEM,
		tokenFile:         tokens,
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, fmt.Errorf("write credentials: %w", err)
		}
	}
	return c, nil
}

// certificates are those of the API servers of this process, by address: to generate one costs more than all else that
// prepares a cluster. The tokens of clusters differ, so that no client can use another one's.
var certificates = struct {
	lock      sync.Mutex
	byAddress map[netip.Addr][2][]byte
}{byAddress: map[netip.Addr][2][]byte{}}

// servingCertificate returns the certificate and the key of an API server at the address.
func servingCertificate(address netip.Addr) (certPEM, keyPEM []byte, err error) {
	certificates.lock.Lock()
	defer certificates.lock.Unlock()
	if made, exists := certificates.byAddress[address]; exists {
		return made[0], made[1], nil
	}
	names := []net.IP{loopback.AsSlice(), address.AsSlice(), ServiceRange.Addr().Next().AsSlice()}
	certPEM, keyPEM, err = cert.GenerateSelfSignedCertKey("localhost", names, []string{"kubernetes.default.svc"})
	if err != nil {
		return nil, nil, fmt.Errorf("generate serving certificate: %w", err)
	}
	certificates.byAddress[address] = [2][]byte{certPEM, keyPEM}
	return certPEM, keyPEM, nil
}

// config returns the client configuration of a user of the token file.
func (c *credentials) config(url, user string) *rest.Config {
	return &rest.Config{
		Host:            url,
		BearerToken:     c.tokens[user],
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca},
		UserAgent:       kubeconfigNames[user],
		QPS:             -1,
	}
}

// writeKubeconfig writes a client configuration to a file for other programs.
func writeKubeconfig(path string, cfg *rest.Config) error {
	const name = "cluster"
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.CurrentContext = name
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
