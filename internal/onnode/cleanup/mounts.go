package cleanup

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
)

// mount is a line of a mountinfo file: device and root identify a directory in a file system, which is mounted at
// point.
type mount struct{ device, root, point string }

// mountsIn returns the mounts in the text of a mountinfo file, in the order in which they were mounted.
func mountsIn(text string) []mount {
	var found []mount
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 4 {
			found = append(found, mount{device: fields[2], root: unescape(fields[3]), point: unescape(fields[4])})
		}
	}
	return found
}

var octal = regexp.MustCompile(`\\[0-7]{3}`)

// unescape decodes the characters that the kernel encodes: space, tab, line feed and backslash.
func unescape(text string) string {
	return octal.ReplaceAllStringFunc(text, func(code string) string {
		return string([]byte{(code[1]-'0')<<6 | (code[2]-'0')<<3 | (code[3] - '0')})
	})
}

// beneath reports whether a path is dir or below it.
func beneath(dir, name string) bool {
	return name == dir || dir == "/" || strings.HasPrefix(name, dir+"/")
}

// mounts are the mounts of the host, as this container has them, and those of all processes.
type mounts struct {
	hostRoot string
	own      []mount
	host     host
	// used has a process for each directory that any process has mounted, nil until it is needed.
	used map[mount]string
}

// isMountPoint reports whether something is mounted at the path, which has no symbolic links.
func (m *mounts) isMountPoint(name string) bool {
	for _, mounted := range m.own {
		if mounted.point == path.Join(m.hostRoot, name) {
			return true
		}
	}
	return false
}

// user returns a process that has a directory or something below it mounted, as a container has directories of the
// host, or "".
func (m *mounts) user(name string) (string, error) {
	here := path.Join(m.hostRoot, name)
	var in mount
	for _, mounted := range m.own {
		// The last one that fits is on top.
		if beneath(mounted.point, here) && len(mounted.point) >= len(in.point) {
			in = mounted
		}
	}
	wanted := path.Join(in.root, strings.TrimPrefix(here, in.point))
	if err := m.readUsers(); err != nil {
		return "", err
	}
	for mounted, process := range m.used {
		if mounted.device == in.device && beneath(wanted, mounted.root) {
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
	used := map[mount]string{}
	seen := map[[sha256.Size]byte]bool{}
	for _, process := range processes {
		text := m.host.readFile(path.Join("proc", process, "mountinfo"))
		digest := sha256.Sum256(text)
		if seen[digest] {
			continue // Of the same mount namespace, or it has ended.
		}
		seen[digest] = true
		for _, mounted := range mountsIn(string(text)) {
			used[mount{device: mounted.device, root: mounted.root}] = process
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
