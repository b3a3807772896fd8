package pluginlink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/clusterpolicy/gpu-operator/internal/names/times"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/nodeapi"
	"github.com/clusterpolicy/gpu-operator/internal/onnode/wait"
)

const (
	// DefaultPatience is how long Once tries to read the node before it fails with the reason.
	DefaultPatience = time.Minute
	// firstPause is the pause after the first failure of the API server; it doubles up to longestPause.
	firstPause   = time.Second
	longestPause = time.Minute
	// maxWatch is longer than any watch: by default an API server ends it after at most an hour. It is for connections
	// that have died silently.
	maxWatch = 70 * time.Minute
)

// API is what is used of the API server.
type API interface {
	Node(ctx context.Context, name string) (nodeapi.Node, error)
	AwaitNode(ctx context.Context, name, version string, enough func(nodeapi.Node) bool) error
}

// Link is the link to the configuration of one node.
type Link struct {
	// Node is the name of the node, and Label the key of the label whose value is the name of a configuration.
	Node, Label string
	API         API
	// Dir has the configurations, one per file, and File is the link to one of them.
	Dir, File string
	// Default is the configuration of a node without the label; empty for an empty configuration.
	Default string
	// Process is argv[0] of the programs that read the configuration, which get Signal when it changes. Empty for none.
	Process string
	Signal  syscall.Signal
	// ProcRoot is where procfs is mounted.
	ProcRoot string
	// Patience is how long Once tries to read the node.
	Patience time.Duration
	Log      *slog.Logger
}

// Once links the configuration of the node. While the node cannot be read, an earlier link stays, as after a reboot;
// without one it is an error, since the default may be wrong.
func (l Link) Once(ctx context.Context) error {
	started := time.Now()
	for failures := 0; ; failures++ {
		node, err := l.API.Node(ctx, l.Node)
		if err == nil {
			return l.update(node.Metadata.Labels[l.Label])
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the configuration of the node is not known: %w", context.Cause(ctx))
		}
		if _, missing := os.Stat(l.File); missing == nil {
			l.Log.Warn("the Node cannot be read; its earlier configuration stays", "error", err)
			return nil
		}
		if time.Since(started) >= l.Patience {
			return fmt.Errorf("the configuration of the node is not known: %w", err)
		}
		if failures == 0 {
			l.Log.Warn("the Node cannot be read; trying again", "error", err)
		}
		wait.Sleep(ctx, times.Jittered(failures, firstPause, longestPause))
	}
}

// Follow keeps the link in line with the label of the node until ctx ends. While the node cannot be read, the link
// stays. It fails if there is no such configuration, or if a process cannot be signalled.
func (l Link) Follow(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		started := time.Now()
		node, err := l.API.Node(ctx, l.Node)
		if err == nil {
			label := node.Metadata.Labels[l.Label]
			if err := l.update(label); err != nil {
				return err
			}
			err = l.awaitOther(ctx, node, label)
		}
		if err == nil || ctx.Err() != nil {
			failures = 0
			continue
		}
		if time.Since(started) > longestPause {
			failures = 0 // The API server ends each watch at some time.
		} else if failures++; failures == 1 {
			l.Log.Warn("the Node cannot be watched; trying again", "error", err)
		}
		wait.Sleep(ctx, times.Jittered(failures, firstPause, longestPause))
	}
	return nil
}

// awaitOther blocks until the node has another label.
func (l Link) awaitOther(ctx context.Context, node nodeapi.Node, label string) error {
	ctx, cancel := context.WithTimeout(ctx, maxWatch)
	defer cancel()
	return l.API.AwaitNode(ctx, l.Node, node.Metadata.ResourceVersion, func(now nodeapi.Node) bool {
		return now.Metadata.Labels[l.Label] != label
	})
}

// update links the configuration that the label selects, and signals if another one was linked before.
func (l Link) update(label string) error {
	chosen, err := l.choose(label)
	if err != nil {
		return err
	}
	before, err := os.Readlink(l.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the link to the configuration: %w", err)
	}
	if before != chosen {
		if err := l.replace(chosen); err != nil {
			return fmt.Errorf("link the configuration: %w", err)
		}
		l.Log.Info("linked the configuration of the node", "label", label, "configuration", chosen)
	}
	return l.signalOnce(chosen)
}

// choose returns the file of the configuration that the label selects. Its errors are those of NVIDIA's program.
func (l Link) choose(label string) (string, error) {
	entries, err := os.ReadDir(l.Dir)
	if err != nil {
		return "", fmt.Errorf("error reading directory: %w", err)
	}
	names := map[string]bool{}
	for _, entry := range entries {
		// The kubelet has directories and links of its own, with this prefix, in the volume of a ConfigMap.
		if !entry.IsDir() && !strings.HasPrefix(entry.Name(), "..") {
			names[entry.Name()] = true
		}
	}
	switch name := cmp.Or(label, l.Default); {
	case len(names) == 0:
		return "", errors.New("no configuration files available")
	case name == "":
		return os.DevNull, nil
	case !names[name]:
		return "", fmt.Errorf("specified config %s does not exist", name)
	default:
		return filepath.Join(l.Dir, name), nil
	}
}

// replace replaces the link, so that a program that reads it finds one of the two.
func (l Link) replace(chosen string) error {
	if l.Process != "" {
		// Before the link: this program may end at any time, and would then see the new link as one that was signalled.
		if err := os.WriteFile(l.unsignalled(), []byte(chosen), 0o600); err != nil {
			return err
		}
	}
	next := l.File + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.Symlink(chosen, next)
	if err == nil {
		err = os.Rename(next, l.File)
	}
	return err
}

// unsignalled is a file with the configuration that was linked, until the processes have got the signal.
func (l Link) unsignalled() string { return l.File + ".unsignalled" }

// signalOnce signals the processes, unless that was done since the configuration was linked.
func (l Link) signalOnce(linked string) error {
	content, err := os.ReadFile(l.unsignalled())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && string(content) == linked && l.Process != "" {
		err = l.signal()
	}
	if err == nil {
		err = os.Remove(l.unsignalled())
	}
	return err
}
