//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// journal is where the machine records which container it started when, a line for each start.
	journal = "/var/lib/stand-in-journal"
	// bundles is where containerd has the folder of each container.
	bundles = "/run/containerd/io.containerd.runtime.v2.task/k8s.io"
	// criAnnotation is the prefix of the annotations in which containerd names a container's pod.
	criAnnotation = "io.kubernetes.cri."
)

// start is one line of the journal.
type start struct {
	Namespace, Pod, Container string
	// At is just before the container's program starts, in nanoseconds since 1970.
	At int64
}

// writeDown records the start of a container, if runc is called for one.
func writeDown(args []string) error {
	found := slices.Index(args, "start")
	if found < 0 || found+1 >= len(args) {
		return nil
	}
	content, err := os.ReadFile(filepath.Join(bundles, args[found+1], "config.json"))
	if err != nil {
		return fmt.Errorf("find out which container starts: %w", err)
	}
	var config struct{ Annotations map[string]string }
	if err := json.Unmarshal(content, &config); err != nil {
		return fmt.Errorf("find out which container starts: %w", err)
	}
	return appendLine(journal, start{
		Namespace: config.Annotations[criAnnotation+"sandbox-namespace"],
		Pod:       config.Annotations[criAnnotation+"sandbox-name"],
		Container: config.Annotations[criAnnotation+"container-name"],
		At:        time.Now().UnixNano(),
	})
}

// appendLine appends a value to a file that has one in each line.
func appendLine(path string, value any) (err error) {
	line, err := json.Marshal(value)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = file.Write(append(line, '\n'))
	return err
}
