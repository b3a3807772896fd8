//go:build linux

package main

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
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// apiClient calls the API server as a pod does. It is not client-go, which would make this program three times as
// large.
type apiClient struct {
	http  *http.Client
	base  string
	token string
}

// inCluster returns a client with the permissions of the pod's service account.
func inCluster() (*apiClient, error) {
	const dir = "/var/run/secrets/kubernetes.io/serviceaccount"
	token, err := os.ReadFile(filepath.Join(dir, "token"))
	if err != nil {
		return nil, fmt.Errorf("read the account's token: %w", err)
	}
	authority, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the API server's authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, errors.New("the API server's authority is no certificate")
	}
	return &apiClient{
		http:  &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}},
		base:  "https://" + net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")),
		token: strings.TrimSpace(string(token)),
	}, nil
}

// call sends a body, if there is one, as a patch, and reads the answer.
func (c *apiClient) call(ctx context.Context, method, path string, body []byte, answer any) error {
	response, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return json.NewDecoder(response.Body).Decode(answer)
}

// follow calls changed with each state of the watched objects, until the server ends the watch.
func (c *apiClient) follow(ctx context.Context, path string, changed func(object) error) error {
	response, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	for events := json.NewDecoder(response.Body); ; {
		var event struct {
			Type   string
			Object object
		}
		err := events.Decode(&event)
		// A server that ends may cut off its watches.
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch %s: %w", path, err)
		}
		if event.Type != "ADDED" && event.Type != "MODIFIED" {
			return nil
		}
		if err := changed(event.Object); err != nil {
			return err
		}
	}
}

// send returns the answer of a call that succeeded; the caller closes it.
func (c *apiClient) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		request.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	content, err := io.ReadAll(response.Body)
	return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", method, path, response.Status, content), err,
		response.Body.Close())
}

// nodePause is how long programs wait before they watch their node again.
const nodePause = time.Second

// eachNode calls changed with the node and with each later state, until the context ends.
func eachNode(ctx context.Context, client *apiClient, name string, changed func(object) error) error {
	for {
		err := watchNode(ctx, client, name, changed)
		if ctx.Err() != nil {
			err = nil // A watch that the end cut off is no failure.
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
		// The server ends each watch after some time.
		time.Sleep(nodePause)
	}
}

// watchNode is eachNode until the server ends the watch.
func watchNode(ctx context.Context, client *apiClient, name string, changed func(object) error) error {
	var node object
	if err := client.call(ctx, http.MethodGet, "/api/v1/nodes/"+name, nil, &node); err != nil {
		return err
	}
	if err := changed(node); err != nil {
		return err
	}
	query := url.Values{
		"watch":           {"true"},
		"fieldSelector":   {"metadata.name=" + name},
		"resourceVersion": {node.Metadata.ResourceVersion},
	}
	return client.follow(ctx, "/api/v1/nodes?"+query.Encode(), changed)
}
