//go:build unix && !linux

package process

import "syscall"

// bind cannot tie a child's life to that of this program: only Linux has a signal for that.
func bind(attributes *syscall.SysProcAttr) { attributes.Setpgid = true }

// bindSelf cannot tie the life of this process to that of its parent, as bind.
func bindSelf() error { return nil }
