package nodeapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// ServiceAccountDir is where the kubelet puts the pod's token and the API server's authority.
	ServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	// requestTimeout bounds one request, the connection included.
	requestTimeout = 15 * time.Second
	// maxNode in bytes bounds what is read of a Node: etcd stores none that is larger.
	maxNode = 4 << 20
)

// Client reads Nodes with the pod's own service account.
type Client struct {
	base  string
	token string // A file, read for each request: the kubelet renews it.
	http  *http.Client
}

// InCluster returns a client of the API server that the kubelet names in the environment
// (KUBERNETES_SERVICE_HOST and _PORT), with the token and the authority in serviceAccountDir. It
// fails where the pod has no service account mounted.
func InCluster(serviceAccountDir string) (*Client, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: run this in a pod")
	}
	authority, err := os.ReadFile(filepath.Join(serviceAccountDir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the API server's authority; is automountServiceAccountToken off? %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("there is no certificate in %s", filepath.Join(serviceAccountDir, "ca.crt"))
	}
	return &Client{
		base:  "https://" + net.JoinHostPort(host, port),
		token: filepath.Join(serviceAccountDir, "token"),
		http: &http.Client{
			Timeout: requestTimeout,
			// No proxy, whatever the environment says: one for the internet cannot reach it.
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
		},
	}, nil
}

// Resources are those of one Node.
type Resources struct {
	// Capacity counts what is advertised, devices that are unhealthy included.
	Capacity map[string]resource.Quantity `json:"capacity"`
	// Allocatable counts what a pod can get.
	Allocatable map[string]resource.Quantity `json:"allocatable"`
}

// Resources returns the resources in the status of the named Node.
func (c *Client) Resources(ctx context.Context, node string) (Resources, error) {
	body, err := c.get(ctx, "/api/v1/nodes/"+url.PathEscape(node))
	if err != nil {
		return Resources{}, err
	}
	var found struct {
		Status Resources `json:"status"`
	}
	if err := json.Unmarshal(body, &found); err != nil {
		return Resources{}, fmt.Errorf("the API server's answer is no Node: %w", err)
	}
	return found.Status, nil
}

func (c *Client) get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	token, err := os.ReadFile(c.token)
	if err != nil {
		return nil, fmt.Errorf("read the service account's token: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Accept", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the API server; check network policies and the pod network: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxNode))
	if err != nil {
		return nil, fmt.Errorf("read the API server's answer: %w", err)
	}
	switch response.StatusCode {
	case http.StatusOK:
		return body, nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("the API server refuses GET %s (%s): bind the ClusterRole that allows to get nodes to the pod's service account",
			path, response.Status)
	case http.StatusNotFound:
		return nil, fmt.Errorf("there is no %s: NODE_NAME must come from the field spec.nodeName", path)
	default:
		return nil, fmt.Errorf("the API server answers GET %s with %s", path, response.Status)
	}
}
