package cleanup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/clusterpolicy/gpu-operator/internal/onnode/mountinfo"
)

// Options are where the stack has its directories on the host.
type Options struct {
	// HostRoot is where the host's root is mounted here.
	HostRoot string
	// RootFS is the root of the operating system, on the host.
	RootFS string
	// DriverInstallDir, ToolkitInstallDir and MPSRoot are directories on the host.
	DriverInstallDir, ToolkitInstallDir, MPSRoot string
	// RuntimeFiles are configuration files of the container runtime, and RuntimeSockets are sockets on which one listens,
	// besides the usual ones.
	RuntimeFiles, RuntimeSockets []string
	// KeepRuntimes: container runtimes that still run with what they have read from the toolkit are only reported.
	KeepRuntimes bool
	// Reloaded are the sockets of the container runtimes to which an earlier run has sent SIGHUP.
	Reloaded []string
	// MountInfo is the file with the mounts of this process.
	MountInfo string
}

// found is an entry that exists: a name in an open directory.
type found struct {
	entry entry
	dir   *os.Root
	name  string
	// path on the host, as the list names it.
	path string
	info fs.FileInfo
}

// verdict is why something stays; the zero value if it does not.
type verdict struct {
	why string
	// busy: it is in use. foreign: it is not the stack's, so it is not reported.
	busy, foreign bool
}

// run is one run of the cleanup.
type run struct {
	options Options
	host    host
	mounts  mounts
	report  Report
	errs    []error
	// toolkit is the verdict on the toolkit's programs, once it is known.
	toolkit *verdict
	// named: a configuration that stays names the toolkit's programs. generated: the container runtime writes it itself.
	named, generated bool
}

// Run removes what the stack has left on the host. The report is valid also if it returns an error, which joins those
// of all entries that could not be removed.
func Run(o Options) (Report, error) {
	root, err := os.OpenRoot(o.HostRoot)
	if err != nil {
		return Report{}, fmt.Errorf("open the host's root; mount it at %s: %w", o.HostRoot, err)
	}
	defer func() { _ = root.Close() }()
	text, err := os.ReadFile(o.MountInfo)
	if err != nil {
		return Report{}, fmt.Errorf("find what is mounted: %w", err)
	}
	r := run{options: o, host: host{root}}
	r.mounts = mounts{hostRoot: o.HostRoot, own: mountinfo.Parse(string(text)), host: r.host}
	r.report.Modules = modulesIn(string(r.host.readFile("proc/modules")))
	for _, e := range runtimeEntries(o) {
		r.clean(e)
	}
	if !r.named && !r.generated {
		r.reloadRuntimes()
	}
	for _, e := range list(o) {
		r.clean(e)
	}
	if !r.named && r.generated && !r.programsAreThere() {
		r.reloadRuntimes()
	}
	return r.report, errors.Join(r.errs...)
}

// clean removes what matches the entry.
func (r *run) clean(e entry) {
	base, at, err := r.host.openDirectory(e.base)
	if err != nil {
		r.noteError(e.base, err)
		return
	}
	defer func() { _ = base.Close() }()
	r.visit(e, base, at, strings.Split(e.name, "/"))
}

// noteError notes an error, unless it is that nothing is there.
func (r *run) noteError(name string, err error) {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		r.errs = append(r.errs, fmt.Errorf("clean %s: %w", name, err))
	}
}

// leave reports what stays, once for each path.
func (r *run) leave(name, by string, v verdict) {
	known := slices.ContainsFunc(r.report.Left, func(l Left) bool { return l.Path == name })
	if !v.foreign && !known {
		r.report.Left = append(r.report.Left, Left{Path: name, By: by, Why: v.why, Busy: v.busy})
	}
}

// visit looks for what matches the patterns in a directory, whose path on the host has no symbolic links.
func (r *run) visit(e entry, dir *os.Root, at string, patterns []string) {
	names, err := matching(dir, patterns[0])
	if err != nil {
		r.noteError(at, err)
		return
	}
	for _, name := range names {
		f := found{entry: e, dir: dir, name: name, path: path.Join(at, name)}
		if f.info, err = dir.Lstat(name); err != nil {
			r.noteError(f.path, err)
			continue
		}
		if len(patterns) == 1 {
			r.remove(f)
			continue
		}
		r.enter(f, patterns[1:])
	}
}

// enter visits a directory of the stack.
func (r *run) enter(f found, patterns []string) {
	switch {
	case f.info.Mode()&fs.ModeSymlink != 0:
		r.leave(f.path, f.entry.by, verdict{why: "it is a symbolic link, which is not followed"})
		return
	case !f.info.IsDir():
		return // The entry of the directory reports it.
	case r.mounts.isMountPoint(f.path):
		r.leave(f.path, f.entry.by, mountedHere)
		return
	}
	sub, err := f.dir.OpenRoot(f.name)
	if err != nil {
		r.noteError(f.path, err)
		return
	}
	defer func() { _ = sub.Close() }()
	// A link may have been put in its place.
	if opened, err := sub.Stat("."); err != nil || !os.SameFile(opened, f.info) {
		r.noteError(f.path, errors.Join(err, errReplaced))
		return
	}
	r.visit(f.entry, sub, f.path, patterns)
}

var (
	errReplaced = errors.New("it was replaced meanwhile")
	mountedHere = verdict{why: "something is mounted there; unmount it once it is not used"}
)

// matching returns the names in a directory that match a pattern.
func matching(dir *os.Root, pattern string) ([]string, error) {
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, entry := range entries {
		matches, err := path.Match(pattern, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		if matches {
			all = append(all, entry.Name())
		}
	}
	return all, nil
}

// remove removes an entry, unless there is a reason that it stays.
func (r *run) remove(f found) {
	v := r.judge(f)
	if v == (verdict{}) && f.entry.keep != nil {
		v = f.entry.keep(r, f)
	}
	if v != (verdict{}) {
		r.leave(f.path, f.entry.by, v)
		return
	}
	switch err := f.dir.Remove(f.name); {
	case err == nil:
		r.report.Removed = append(r.report.Removed, f.path)
	case errors.Is(err, syscall.EBUSY):
		r.leave(f.path, f.entry.by, mountedHere)
	case errors.Is(err, syscall.ENOTEMPTY):
		r.leave(f.path, f.entry.by, verdict{why: "it is filled again", busy: true})
	default:
		r.noteError(f.path, err)
	}
}

// judge returns why an entry stays by what it is.
func (r *run) judge(f found) verdict {
	mode, kind := f.info.Mode(), f.entry.kind
	switch {
	case r.mounts.isMountPoint(f.path):
		return mountedHere
	case kind == directory || kind == sharedDirectory:
		return r.judgeDirectory(f)
	case kind == anyFile && mode.IsDir():
		return verdict{why: "it is a directory, which the stack does not make"}
	case kind == socket && mode.Type() != fs.ModeSocket:
		return verdict{why: "it is not a socket"}
	case mode.Type() == fs.ModeSocket && served(f):
		return verdict{why: "a program serves this socket", busy: true}
	}
	return verdict{}
}

// mostNames is how many names of files a message has.
const mostNames = 3

func (r *run) judgeDirectory(f found) verdict {
	shared := f.entry.kind == sharedDirectory
	if !f.info.IsDir() {
		return verdict{why: "it is not a directory", foreign: shared}
	}
	sub, err := f.dir.OpenRoot(f.name)
	if err != nil {
		return verdict{why: err.Error()}
	}
	defer func() { _ = sub.Close() }()
	names, err := matching(sub, "*")
	if err != nil {
		return verdict{why: err.Error()}
	}
	if len(names) > 0 {
		unknown := slices.DeleteFunc(names, func(name string) bool { return r.isLeft(path.Join(f.path, name)) })
		if len(unknown) > mostNames {
			unknown = append(unknown[:mostNames:mostNames], fmt.Sprintf("and %d more", len(unknown)-mostNames))
		}
		return verdict{
			why:     "it has files that the stack is not known to make: " + strings.Join(unknown, ", "),
			foreign: shared || len(unknown) == 0,
		}
	}
	user, err := r.mounts.user(f.path)
	if err != nil {
		return verdict{why: "it is unknown whether a container uses it: " + err.Error(), foreign: shared}
	}
	if user != "" {
		return verdict{why: user + " has it mounted", busy: true, foreign: shared}
	}
	return verdict{}
}

// isLeft reports whether something at or below a path is reported.
func (r *run) isLeft(name string) bool {
	return slices.ContainsFunc(r.report.Left, func(l Left) bool { return mountinfo.Beneath(name, l.Path) })
}
