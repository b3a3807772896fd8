// Package mountinfo reads the mounts of a process, see proc_pid_mountinfo(5).
package mountinfo

import (
	"path"
	"regexp"
	"strings"
)

// Mount is a directory in a file system, identified by Device and Root, that is mounted at Point.
type Mount struct{ Device, Root, Point string }

// Parse returns the mounts in the text of a mountinfo file, in the order in which they were mounted.
func Parse(text string) []Mount {
	var found []Mount
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 4 {
			found = append(found, Mount{Device: fields[2], Root: unescape(fields[3]), Point: unescape(fields[4])})
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

// Beneath reports whether a path is dir or below it.
func Beneath(dir, name string) bool {
	return name == dir || dir == "/" || strings.HasPrefix(name, dir+"/")
}

// Of returns the mount in which a path lies, with the path in its file system as Root; zero if no mount has it.
func Of(mounts []Mount, name string) Mount {
	var in Mount
	for _, mounted := range mounts {
		// A later mount hides an earlier one at the same place.
		if Beneath(mounted.Point, name) && len(mounted.Point) >= len(in.Point) {
			in = mounted
		}
	}
	in.Root = path.Join(in.Root, strings.TrimPrefix(name, in.Point))
	return in
}
