package proxy

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// A file that may not be read is no ordinary miss: somebody is told.
func TestFiles_WhatMayNotBeReadIsNotOpened(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("takes another user's rights for one thread, as root")
	}
	dir, err := os.MkdirTemp("", "files")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "a"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	err = asNobody(func() error {
		file, err := (&Files{Dir: dir}).open("a")
		if err == nil {
			file.Close()
		}
		return err
	})
	if !errors.Is(err, fs.ErrPermission) || isMiss(err) {
		t.Errorf("%v, an ordinary miss: %v", err, isMiss(err))
	}
}

// asNobody runs do on a thread that opens files as another user, and lets the
// thread end with it.
func asNobody(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0)
		done <- do()
	}()
	return <-done
}
