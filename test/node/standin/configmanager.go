//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// nodePause is how long config-manager waits before it watches its node again.
const nodePause = time.Second

// manageConfig is config-manager of the device plugin: it links the configuration that the label of its node selects to
// one place, and signals the program that reads it. Like the real one since 0.18.2 it begins as on a node without the
// label, and the one that runs once ends with that.
func manageConfig([]string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	client, err := inCluster()
	if err != nil {
		return err
	}
	last := ""
	if err := link(last); err != nil || os.Getenv("ONESHOT") == "true" {
		return err
	}
	return eachNode(ctx, client, os.Getenv("NODE_NAME"), func(node object) error {
		label := node.Metadata.Labels[os.Getenv("NODE_LABEL")]
		if label == last {
			return nil
		}
		last = label
		return link(label)
	})
}

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

// link links the configuration that a label selects, and signals if it is another one than before. Like the real one it
// takes a link to a file that is gone for missing, and then cannot create it.
func link(label string) error {
	chosen, err := chosenConfig(label)
	if err != nil {
		return err
	}
	place := os.Getenv("CONFIG_FILE_DST")
	switch before, err := filepath.EvalSymlinks(place); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if next, err := filepath.EvalSymlinks(chosen); err != nil || next == before {
			return err
		}
		if err := os.Remove(place); err != nil {
			return err
		}
	}
	if err := os.Symlink(chosen, place); err != nil {
		return fmt.Errorf("error creating symlink: %w", err)
	}
	fmt.Printf("the configuration is %s\n", chosen)
	if os.Getenv("SEND_SIGNAL") != "true" {
		return nil
	}
	return signalReader()
}

// chosenConfig returns the file of a configuration, which must exist. Without a label it is the default configuration,
// and without that an empty one; but there must be any.
func chosenConfig(label string) (string, error) {
	dir := os.Getenv("CONFIG_FILE_SRCDIR")
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	names := map[string]bool{}
	for _, file := range files {
		// A ConfigMap's volume has folders and links of its own, with this prefix.
		if !file.IsDir() && !strings.HasPrefix(file.Name(), "..") {
			names[file.Name()] = true
		}
	}
	if len(names) == 0 {
		return "", errors.New("no configuration files available")
	}
	name := label
	if name == "" {
		name = os.Getenv("DEFAULT_CONFIG")
	}
	if name == "" {
		if fallback := os.Getenv("FALLBACK_STRATEGIES"); fallback != "empty" {
			return "", fmt.Errorf("the fallback %q is not played; empty alone is", fallback)
		}
		return os.DevNull, nil
	}
	if !names[name] {
		// The real one names the label, also where the default is missing.
		return "", fmt.Errorf("specified config %s does not exist", label)
	}
	return filepath.Join(dir, name), nil
}

// signalReader signals the process of the pod that was started by the exact name of the reader.
func signalReader() error {
	number, err := strconv.Atoi(os.Getenv("SIGNAL"))
	if err != nil {
		return fmt.Errorf("read SIGNAL: %w", err)
	}
	reader := os.Getenv("PROCESS_TO_SIGNAL")
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // A process that has ended.
		}
		if name, _, _ := strings.Cut(string(line), "\x00"); name != reader {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return err
		}
		return syscall.Kill(pid, syscall.Signal(number))
	}
	return errors.New("error finding pid: no process found")
}
