package proxy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// spool is where bodies and answers go that memory has no room for: temporary
// files that have no name any more, so that nothing is left of them whatever
// happens to the process.
type spool struct {
	mu    sync.Mutex
	dir   string // "" = the system's
	used  int64
	limit int64
	fails uint64
}

var errSpoolFull = errors.New("the spool is full")

func (s *spool) configure(dir string, limit int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dir, s.limit = dir, limit
}

// Used is how many bytes are spooled; Fails how often there was no room, or
// no file to be had.
func (s *spool) counts() (used int64, fails uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, s.fails
}

func (s *spool) take(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+int64(n) > s.limit {
		s.fails++
		return false
	}
	s.used += int64(n)
	return true
}

func (s *spool) give(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
}

func (s *spool) failed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails++
}

// spooled is one body or answer in a file, written at its end by one
// goroutine while another reads what was written.
type spooled struct {
	spool *spool
	file  *os.File
	size  int64 // the writer's
}

// create makes a file that nobody can open by name.
func (s *spool) create() (*spooled, error) {
	s.mu.Lock()
	dir := s.dir
	s.mu.Unlock()
	file, err := os.CreateTemp(dir, "holdfast-*")
	if err != nil {
		s.failed()
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		file.Close()
		s.failed()
		return nil, err
	}
	return &spooled{spool: s, file: file}, nil
}

// append writes p whole, or nothing that counts.
func (f *spooled) append(p []byte) error {
	if !f.spool.take(len(p)) {
		return errSpoolFull
	}
	if _, err := f.file.WriteAt(p, f.size); err != nil {
		f.spool.give(int64(len(p)))
		f.spool.failed()
		return fmt.Errorf("spool: %w", err)
	}
	f.size += int64(len(p))
	return nil
}

// clear gives the file's room back; nobody reads it any more. Where the disk does
// not take it back, it is written over.
func (f *spooled) clear() {
	f.spool.give(f.size)
	f.size = 0
	f.file.Truncate(0)
}

// sendTo writes the whole file, by sendfile where the system has it.
func (f *spooled) sendTo(w io.Writer) error {
	if _, err := f.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.Copy(w, &io.LimitedReader{R: f.file, N: f.size})
	return err
}

func (f *spooled) close() {
	f.spool.give(f.size)
	f.size = 0
	f.file.Close()
}
