package cleanup

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/mountinfo"
)

// mounts are the mounts of the host, as this container has them, and those of all processes.
type mounts struct {
	hostRoot string
	own      []mountinfo.Mount
	host     host
	// used has a process for each directory that any process has mounted, nil until it is needed.
	used map[mountinfo.Mount]string
}

// isMountPoint reports whether something is mounted at the path, which has no symbolic links.
func (m *mounts) isMountPoint(name string) bool {
	return slices.ContainsFunc(m.own, func(mounted mountinfo.Mount) bool {
		return mounted.Point == path.Join(m.hostRoot, name)
	})
}

// user returns a process that has a directory or something below it mounted, as a container has directories of the
// host, or "".
func (m *mounts) user(name string) (string, error) {
	wanted := mountinfo.Of(m.own, path.Join(m.hostRoot, name))
	if err := m.readUsers(); err != nil {
		return "", err
	}
	for mounted, process := range m.used {
		if mounted.Device == wanted.Device && mountinfo.Beneath(wanted.Root, mounted.Root) {
			return process, nil
		}
	}
	return "", nil
}

// readUsers reads the mounts of all processes of the host.
func (m *mounts) readUsers() error {
	if m.used != nil {
		return nil
	}
	processes, err := m.host.processes()
	if err != nil {
		return err
	}
	used := map[mountinfo.Mount]string{}
	seen := map[[sha256.Size]byte]bool{}
	for _, process := range processes {
		text := m.host.readFile(path.Join("proc", process, "mountinfo"))
		digest := sha256.Sum256(text)
		if seen[digest] {
			continue // Of the same mount namespace, or it has ended.
		}
		seen[digest] = true
		for _, mounted := range mountinfo.Parse(string(text)) {
			used[mountinfo.Mount{Device: mounted.Device, Root: mounted.Root}] = process
		}
	}
	for mounted, process := range used {
		used[mounted] = m.host.describe(process)
	}
	m.used = used
	return nil
}

// processes returns the IDs of the host's processes.
func (h host) processes() ([]string, error) {
	entries, err := fs.ReadDir(h.root.FS(), "proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes of the host; is its root mounted with its /proc? %w", err)
	}
	var found []string
	for _, entry := range entries {
		if strings.Trim(entry.Name(), "0123456789") == "" {
			found = append(found, entry.Name())
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("there are no processes in the host's /proc: %w", os.ErrNotExist)
	}
	return found, nil
}

// describe names a process for a message.
func (h host) describe(process string) string {
	return fmt.Sprintf("process %s (%s)", process, h.command(process))
}

// command returns the name of a process's program, of which the kernel keeps 15 bytes; empty if it does not run.
func (h host) command(process string) string {
	return string(bytes.TrimSpace(h.readFile(path.Join("proc", process, "comm"))))
}
