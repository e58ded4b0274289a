package proxy

import (
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// full gives both ends of a connection whose kernel takes no more of what is
// written to the second, and how much it took.
func full(t *testing.T) (client net.Conn, server *net.TCPConn, took int) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server = nc.(*net.TCPConn)
	t.Cleanup(func() { server.Close() })
	raw, err := server.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Write(func(fd uintptr) bool {
		for {
			n, err := syscall.Write(int(fd), make([]byte, 64<<10))
			if err != nil {
				return true
			}
			took += n
		}
	})
	return client, server, took
}

// The goroutine that closes may be a loop of holds: it must not wait for a
// client that reads nothing, and what is said last comes nevertheless.
func TestTLSWire_WhatIsSaidLastWaitsForNobodyAndIsNotLost(t *testing.T) {
	for _, shut := range []bool{false, true} {
		client, server, took := full(t)
		w := &wire{Conn: server}
		w.part()
		if n, err := w.Write([]byte("last")); n != 4 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := w.Write([]byte(" words")); n != 6 || err != nil {
			t.Fatal(n, err)
		}
		if shut {
			if err := w.shut(); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("more")); err == nil {
			t.Error("something can be said after the last")
		}
		// All of that with nothing read: it did not wait.
		client.SetDeadline(time.Now().Add(30 * time.Second))
		got, err := io.ReadAll(client)
		if err != nil || len(got) != took+10 || !strings.HasSuffix(string(got), "last words") {
			t.Errorf("%d bytes came, %.20q at their end, %v; want %d", len(got), got[max(0, len(got)-10):], err, took+10)
		}
	}
}

// A write that is under way when the end begins is given up, and nothing can
// follow half of a record.
func TestTLSWire_NothingFollowsAWriteThatWasGivenUp(t *testing.T) {
	client, server, took := full(t)
	w := &wire{Conn: server}
	w.patient.Store(true)
	w.SetWriteDeadline(time.Now().Add(time.Hour))
	ended := make(chan error, 1)
	go func() {
		_, err := w.Write([]byte("half of a record"))
		ended <- err
	}()
	for stacks := make([]byte, 1<<20); !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), ".waitWrite("); {
		runtime.Gosched()
	}
	w.part()
	if err := <-ended; err == nil {
		t.Error("it was taken")
	}
	if n, err := w.Write([]byte("close_notify")); err == nil {
		t.Errorf("%d bytes were taken behind it", n)
	}
	w.Close()
	client.SetDeadline(time.Now().Add(30 * time.Second))
	if got, err := io.ReadAll(client); err != nil || len(got) != took {
		t.Errorf("%d bytes came, %v; want %d", len(got), err, took)
	}
}
