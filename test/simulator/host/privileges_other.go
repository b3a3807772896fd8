//go:build unix && !linux

package host

import "syscall"

// privileges returns none: only Linux has user namespaces.
func privileges() *syscall.SysProcAttr { return nil }
