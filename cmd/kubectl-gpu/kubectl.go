package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// kubectl runs kubectl, so that commands reach the cluster as their user does.
type kubectl struct{ kubeconfig, context string }

// addFlags adds the flags that choose the cluster.
func (k *kubectl) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&k.kubeconfig, "kubeconfig", "", "kubeconfig that kubectl uses")
	flags.StringVar(&k.context, "context", "", "context that kubectl uses")
}

// answered reports whether the API server has answered a call of kubectl with this reason.
func answered(err error, reason string) bool {
	return err != nil && strings.Contains(err.Error(), "Error from server ("+reason+")")
}

// get runs kubectl get with these arguments and returns its output as JSON; empty for nothing.
func (k kubectl) get(ctx context.Context, args ...string) ([]byte, error) {
	return k.run(ctx, nil, "get", append(slices.Clone(args), "--ignore-not-found", "-o", "json")...)
}

// run runs a command of kubectl with these arguments and standard input, and returns its output.
func (k kubectl) run(ctx context.Context, in []byte, command string, args ...string) ([]byte, error) {
	all := append(k.clusterArgs(command), args...)
	cmd := exec.CommandContext(ctx, "kubectl", all...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("kubectl %s: %w: %s", strings.Join(all, " "), err, strings.TrimSpace(errOut.String()))
	}
	return out.Bytes(), nil
}

// clusterArgs returns a command of kubectl with the flags that choose the cluster.
func (k kubectl) clusterArgs(command string) []string {
	all := []string{command}
	if k.kubeconfig != "" {
		all = append(all, "--kubeconfig="+k.kubeconfig)
	}
	if k.context != "" {
		all = append(all, "--context="+k.context)
	}
	return all
}

// podNamespace is the file with the namespace of the pod that this program runs in.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// namespace returns that of the context, or without any context that of this program's pod, as kubectl does.
func (k kubectl) namespace(ctx context.Context) (string, error) {
	out, err := k.run(ctx, nil, "config", "view", "--minify", "--output", "jsonpath={..namespace}")
	if err != nil && k.context == "" && strings.Contains(err.Error(), "current-context must exist") {
		out, err = os.ReadFile(podNamespace)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return cmp.Or(strings.TrimSpace(string(out)), "default"), err
}
