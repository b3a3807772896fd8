package nodeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// ServiceAccountDir is where the kubelet mounts the pod's token and the API server's CA certificate.
	ServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	// requestTimeout limits one request, the connection included.
	requestTimeout = 15 * time.Second
	// maxAnswer, in bytes, limits what is read of an object: etcd stores none that is larger.
	maxAnswer = 4 << 20
)

// Client calls the API server with the pod's service account.
type Client struct {
	base  string
	token string // A file, read for each request: the kubelet renews it.
	http  *http.Client
}

// InCluster returns a client of the API server that the kubelet names in the environment (KUBERNETES_SERVICE_HOST
// and _PORT), with the token and the CA certificate in serviceAccountDir. It fails if the pod has no service account
// mounted.
func InCluster(serviceAccountDir string) (*Client, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: run this in a pod")
	}
	authority, err := os.ReadFile(filepath.Join(serviceAccountDir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the API server's CA certificate; is automountServiceAccountToken off? %w", err)
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
			// Never through a proxy of the environment: one for the internet cannot reach the API server.
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
		},
	}, nil
}

// StatusError is an error status from the API server.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// Reason is the API's reason, such as AlreadyExists; empty if it has none.
	Reason string
	text   string
}

func (e *StatusError) Error() string { return e.text }

// IsNotFound reports whether the object does not exist.
func IsNotFound(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == http.StatusNotFound
}

// call makes one request. A body other than nil is sent as JSON with that content type; the answer is decoded into
// answer unless that is nil.
func (c *Client) call(ctx context.Context, method, path, contentType string, body, answer any) error {
	response, err := c.send(ctx, c.http, method, path, contentType, body)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	received, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the API server's answer: %w", err)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(received, answer); err != nil {
		return fmt.Errorf("the API server's answer to %s %s cannot be decoded: %w", method, path, err)
	}
	return nil
}

// send makes one request and returns the successful response; the caller closes its body.
func (c *Client) send(
	ctx context.Context, by *http.Client, method, path, contentType string, body any,
) (*http.Response, error) {
	var content io.Reader = http.NoBody
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return nil, fmt.Errorf("create the request: %w", err)
	}
	token, err := os.ReadFile(c.token)
	if err != nil {
		return nil, fmt.Errorf("read the service account's token: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := by.Do(request)
	if err != nil {
		return nil, fmt.Errorf("the API server cannot be reached; check network policies and the pod network: %w", err)
	}
	if response.StatusCode < http.StatusMultipleChoices {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	received, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the API server's answer: %w", err)
	}
	return nil, refusal(method, path, response, received)
}

// refusal returns the API server's own reason, with a remedy if there is one.
func refusal(method, path string, response *http.Response, body []byte) error {
	// The query is not part of the message.
	path, _, _ = strings.Cut(path, "?")
	reason := response.Status
	var status struct {
		Message string `json:"message"`
		Reason  string `json:"reason"`
	}
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		reason += ": " + status.Message
	}
	text := fmt.Sprintf("the API server answers %s %s with %s", method, path, reason)
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		text = fmt.Sprintf("the API server refuses %s %s (%s): check the roles of the pod's service account and the "+
			"admission policies", method, path, reason)
	case http.StatusNotFound:
		text = fmt.Sprintf("%s does not exist", path)
	}
	return &StatusError{Code: response.StatusCode, Reason: status.Reason, text: text}
}
