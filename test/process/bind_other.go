//go:build unix && !linux

package process

import "syscall"

// bind does nothing: only Linux has a parent-death signal.
func bind(attributes *syscall.SysProcAttr) { attributes.Setpgid = true }

// BindSelf does nothing, as bind.
func BindSelf() error { return nil }
