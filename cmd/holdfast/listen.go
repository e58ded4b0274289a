package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"holdfast/internal/tcp"
)

// listen binds an address of the configuration.
func listen(text string) (net.Listener, error) {
	e, err := parseListen(text)
	if err != nil {
		return nil, err
	}
	config := net.ListenConfig{KeepAliveConfig: tcp.KeepAlive, Control: tcp.Control}
	ln, err := config.Listen(context.Background(), e.network, e.address)
	if e.network == "unix" && errors.Is(err, syscall.EADDRINUSE) && abandonedSocket(e.address) {
		if err := os.Remove(e.address); err != nil {
			return nil, err
		}
		ln, err = config.Listen(context.Background(), e.network, e.address)
	}
	if err != nil {
		return nil, err
	}
	if err := e.setAccess(); err != nil {
		ln.Close()
		return nil, err
	}
	return ln, nil
}

// abandonedSocket reports whether a socket file is left over from a process
// that is gone: nobody takes a connection on it.
func abandonedSocket(path string) bool {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// setAccess gives a unix socket the mode and group that were asked for.
func (e endpoint) setAccess() error {
	if e.group != "" {
		id, err := strconv.Atoi(e.group)
		if err != nil {
			group, err := user.LookupGroup(e.group)
			if err != nil {
				return fmt.Errorf("its group: %w", err)
			}
			if id, err = strconv.Atoi(group.Gid); err != nil {
				return err
			}
		}
		if err := os.Chown(e.address, -1, id); err != nil {
			return err
		}
	}
	if e.hasMode {
		return os.Chmod(e.address, e.mode)
	}
	return nil
}
