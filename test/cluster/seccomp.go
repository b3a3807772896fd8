package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	children "github.com/clusterpolicy/gpu-operator/test/process"
)

// seccompPackage is Debian's package with the headers and the static library of libseccomp.
const seccompPackage = "libseccomp-dev"

// withSeccomp returns the environment for building runc. Without libseccomp runc would refuse every container whose
// pod sets the seccomp profile RuntimeDefault. If the system has no headers, Debian's package is unpacked below dir.
func withSeccomp(ctx context.Context, dir string) ([]string, error) {
	env := []string{"CGO_ENABLED=1", "GOFLAGS=-buildvcs=false -trimpath -tags=seccomp"}
	if exec.CommandContext(ctx, "pkg-config", "--exists", "libseccomp").Run() == nil {
		return env, nil
	}
	unpacked := filepath.Join(dir, seccompPackage)
	if err := unpackDebian(ctx, seccompPackage, unpacked); err != nil {
		return nil, fmt.Errorf("get the headers of libseccomp: %w; install them by hand", err)
	}
	libraries, err := filepath.Glob(filepath.Join(unpacked, "usr", "lib", "*", "libseccomp.a"))
	if err != nil || len(libraries) != 1 {
		return nil, fmt.Errorf("the package %s has no libseccomp.a at the expected path: %w", seccompPackage,
			errors.Join(err, os.ErrNotExist))
	}
	// This script replaces pkg-config for this one library, as the machine may not have it. The folders are variables
	// of the build, as the Go command's cache key has those and not what pkg-config prints: another clone of this
	// repository would otherwise link with the folders of the first.
	program := filepath.Join(unpacked, "pkg-config")
	script := "#!/bin/sh\ncase $1 in --libs) echo -l:libseccomp.a;; esac\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		return nil, err
	}
	return append(env, "PKG_CONFIG="+program,
		"CGO_CFLAGS=-O2 -I"+filepath.Join(unpacked, "usr", "include"), "CGO_LDFLAGS=-O2 -L"+filepath.Dir(libraries[0])), nil
}

// unpackDebian unpacks a package into dir without installing it. The package lists are fetched into dir if the system
// has none.
func unpackDebian(ctx context.Context, name, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	apt := func(options ...string) error {
		// The user of apt's sandbox could not write to dir.
		return children.Run(ctx, dir, "apt-get", append([]string{"-q", "-o", "APT::Sandbox::User=root"}, options...)...)
	}
	if failure := apt("download", name); failure != nil {
		if err := downloadWithOwnLists(apt, name, dir); err != nil {
			return errors.Join(failure, err)
		}
	}
	packages, err := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("apt-get download %s left %d packages: %w", name, len(packages), errors.Join(err, os.ErrNotExist))
	}
	return children.Run(ctx, dir, "dpkg-deb", "-x", packages[0], dir)
}

// downloadWithOwnLists fetches the package lists into dir, then the package, and removes the lists.
func downloadWithOwnLists(apt func(...string) error, name, dir string) error {
	state := filepath.Join(dir, "apt")
	if err := os.MkdirAll(filepath.Join(state, "lists", "partial"), 0o755); err != nil {
		return err
	}
	lists := []string{"-o", "Dir::State=" + state, "-o", "Dir::Cache=" + state}
	return errors.Join(apt(append(lists, "update")...), apt(append(lists, "download", name)...), os.RemoveAll(state))
}
