package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// hostFlags of gpu-node take paths on the machine, not in the container: it only writes them to files.
var hostFlags = []string{"driver-install-dir"}

// helpLine matches a flag in a help text: its name, the type of its value unless it is a switch, and its description,
// with the default at the end.
var (
	helpLine    = regexp.MustCompile(`^ +(?:-\w, )?--([a-z0-9-]+)(?: (\w+))? {2,}(.*)$`)
	helpDefault = regexp.MustCompile(`\(default "([^"]*)"\)$`)
)

// flag of gpu-node.
type flag struct {
	name, kind, preset string
}

// helps caches the flags of commands, by program and command.
var helps = struct {
	sync.Mutex
	flags map[string][]flag
}{flags: map[string][]flag{}}

// flagsOf parses the flags of a command from its help, so that new flags need no change here.
func flagsOf(ctx context.Context, program string, command []string) ([]flag, error) {
	key := program + "\x00" + strings.Join(command, "\x00")
	helps.Lock()
	defer helps.Unlock()
	if known, ok := helps.flags[key]; ok {
		return known, nil
	}
	out, err := exec.CommandContext(ctx, program, append(slices.Clone(command), "--help")...).Output()
	if err != nil {
		return nil, fmt.Errorf("read the flags of gpu-node's command %s: %w", strings.Join(command, " "), err)
	}
	flags := parseHelp(string(out))
	helps.flags[key] = flags
	return flags, nil
}

func parseHelp(text string) []flag {
	var flags []flag
	for line := range strings.Lines(text) {
		found := helpLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if found == nil {
			continue
		}
		f := flag{name: found[1], kind: found[2]}
		if preset := helpDefault.FindStringSubmatch(found[3]); preset != nil {
			f.preset = preset[1]
		}
		flags = append(flags, f)
	}
	return flags
}

// commandLine returns the command line of the container's program on this computer: container paths, in gpu-node's
// arguments or defaults, are replaced by the paths on this computer. becomes is the program that gpu-node executes,
// whose arguments are unchanged.
func (h *Host) commandLine(
	ctx context.Context, c Container, files filesystem,
) (argv []string, becomes string, err error) {
	given := slices.Concat(c.Spec.Command, c.Spec.Args)
	if filepath.Base(given[0]) != filepath.Base(gpuNodePath) {
		return append([]string{files.locate(given[0])}, given[1:]...), "", nil
	}
	own, rest := given[1:], []string(nil)
	if end := slices.Index(own, "--"); end >= 0 {
		own, rest = own[:end], own[end+1:]
	}
	command := own
	if end := slices.IndexFunc(own, func(arg string) bool { return strings.HasPrefix(arg, "-") }); end >= 0 {
		command = own[:end]
	}
	flags, err := flagsOf(ctx, h.programs.GPUNode, command)
	if err != nil {
		return nil, "", err
	}
	argv = slices.Concat([]string{files.locate(given[0])}, translate(own, flags, files))
	if rest != nil {
		if len(rest) == 0 {
			return nil, "", errors.New("the command line ends with --")
		}
		becomes = filepath.Base(rest[0])
		argv = append(argv, slices.Concat([]string{"--", becomes}, rest[1:])...)
	}
	return argv, becomes, nil
}

// translate replaces the paths in gpu-node's own arguments: positional ones in place, those of flags by a further
// value, as the last one applies.
func translate(own []string, flags []flag, files filesystem) []string {
	values := map[string]string{}
	for _, f := range flags {
		values[f.name] = f.preset
	}
	var argv []string
	for i := 0; i < len(own); i++ {
		name, isFlag := strings.CutPrefix(own[i], "--")
		if !isFlag {
			argv = append(argv, located(own[i], files))
			continue
		}
		argv = append(argv, own[i])
		name, value, given := strings.Cut(name, "=")
		if !given && takesValue(flags, name) && i+1 < len(own) {
			i++
			value = own[i]
			argv = append(argv, value)
		}
		values[name] = value
	}
	for _, f := range flags {
		if value := values[f.name]; f.kind == "string" && filepath.IsAbs(value) && !slices.Contains(hostFlags, f.name) {
			argv = append(argv, "--"+f.name+"="+files.locate(value))
		}
	}
	return argv
}

// located replaces an argument if it is a path.
func located(arg string, files filesystem) string {
	if filepath.IsAbs(arg) {
		return files.locate(arg)
	}
	return arg
}

func takesValue(flags []flag, name string) bool {
	return slices.ContainsFunc(flags, func(f flag) bool { return f.name == name && f.kind != "" })
}

// installCommand installs the program that gpu-node executes in the container's PATH, and returns the directory.
func (h *Host) installCommand(c Container, becomes string) (string, error) {
	bin := filepath.Join(h.containerDir(c), "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil || becomes == "" {
		return bin, err
	}
	program := filepath.Join(bin, becomes)
	if err := os.RemoveAll(program); err != nil {
		return bin, err
	}
	return bin, os.Symlink(h.standIn(), program)
}
