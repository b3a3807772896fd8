package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ServiceAccountConfig returns a client configuration with the permissions of a ServiceAccount.
func (c *Cluster) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(c.SimulatorConfig)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	request := &authenticationv1.TokenRequest{}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request token of service account %s/%s: %w", namespace, name, err)
	}
	cfg := rest.CopyConfig(c.Config)
	cfg.BearerToken, cfg.UserAgent = token.Status.Token, name
	return cfg, nil
}

// ServiceAccountKubeconfig writes a kubeconfig with the permissions of a ServiceAccount and returns its path. server
// replaces the API server's URL unless it is empty, such as by that of a Front.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name, server string) (string, error) {
	cfg, err := c.ServiceAccountConfig(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	if server != "" {
		cfg.Host = server
	}
	dir, err := os.MkdirTemp(c.dir, "kubeconfig-")
	if err != nil {
		return "", fmt.Errorf("make kubeconfig folder: %w", err)
	}
	path := filepath.Join(dir, namespace+"-"+name)
	return path, writeKubeconfig(path, cfg)
}
