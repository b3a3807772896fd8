package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Suffixes of the files next to a launcher.
const (
	launchSuffix = ".launch"
	pidSuffix    = ".pid"
)

// Launcher makes a program die with this one if other code starts it, such as envtest, which neither sets attributes
// of its processes nor exposes them. The other code starts the launcher instead of the program: a link to this
// program itself, which binds itself and then executes the other one, see init.
type Launcher struct {
	// Path is what to start, on a lasting thread (OnLastingThread). The arguments go to the program.
	Path string
}

// launch describes how a launcher executes its program.
type launch struct {
	Program string
	Dir     string
	// Env replaces inherited variables.
	Env map[string]string
	// Parent is the process with which the program dies.
	Parent int
}

// NewLauncher creates a launcher of the program, which runs in the folder dir with further environment variables. The
// launcher is in the folder at, which must exist, and has the program's name.
func NewLauncher(at, program, dir string, env map[string]string) (*Launcher, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the path of this program: %w", err)
	}
	data, err := json.Marshal(launch{Program: program, Dir: dir, Env: env, Parent: os.Getpid()})
	if err != nil {
		return nil, fmt.Errorf("encode launch of %s: %w", program, err)
	}
	path := filepath.Join(at, filepath.Base(program))
	if err := os.WriteFile(path+launchSuffix, data, 0o600); err != nil {
		return nil, fmt.Errorf("write launch of %s: %w", program, err)
	}
	if err := os.Symlink(self, path); err != nil {
		return nil, fmt.Errorf("link launcher of %s: %w", program, err)
	}
	return &Launcher{Path: path}, nil
}

// Signal sends a signal to the last started program, and waits until SIGSTOP has taken effect. It returns
// os.ErrProcessDone if there is none, or if it has exited.
func (l *Launcher) Signal(signal syscall.Signal) error {
	// A file that is missing or still empty belongs to a program that has not started yet.
	data, _ := os.ReadFile(l.Path + pidSuffix)
	pid, err := strconv.Atoi(string(data))
	if err != nil {
		return os.ErrProcessDone
	}
	err = syscall.Kill(pid, signal)
	switch {
	case errors.Is(err, syscall.ESRCH):
		return os.ErrProcessDone
	case err == nil && signal == syscall.SIGSTOP:
		AwaitStop(pid)
	}
	return err
}

// init executes the program of a launcher if this process is one. It runs before the init of larger packages, so that
// this takes milliseconds.
func init() {
	if len(os.Args) == 0 || !strings.HasPrefix(os.Args[0], string(filepath.Separator)) {
		return
	}
	data, err := os.ReadFile(os.Args[0] + launchSuffix)
	if err != nil {
		// Not a launcher.
		return
	}
	err = become(data)
	fmt.Fprintf(os.Stderr, "launch %s: %v\n", os.Args[0], err)
	os.Exit(1)
}

// become executes the program of a launch in this process. It only returns on an error.
func become(data []byte) error {
	var l launch
	if err := json.Unmarshal(data, &l); err != nil {
		return fmt.Errorf("decode launch: %w", err)
	}
	// All init functions run on the main thread, which then executes the program.
	if err := BindSelf(); err != nil {
		return fmt.Errorf("bind to parent: %w", err)
	}
	if os.Getppid() != l.Parent {
		return fmt.Errorf("the parent %d has exited", l.Parent)
	}
	if err := os.WriteFile(os.Args[0]+pidSuffix, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return fmt.Errorf("write process id: %w", err)
	}
	if err := os.Chdir(l.Dir); err != nil {
		return fmt.Errorf("change folder: %w", err)
	}
	for name, value := range l.Env {
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("set variable %s: %w", name, err)
		}
	}
	err := syscall.Exec(l.Program, append([]string{l.Program}, os.Args[1:]...), os.Environ())
	return fmt.Errorf("run %s: %w", l.Program, err)
}
