package upstream

import (
	"errors"
	"fmt"
)

// What can go wrong between us and the app: a closed set. Every error of this
// package is an *Error around one of these.
var (
	// ErrUnreachable: no connection could be had. Nothing was sent.
	ErrUnreachable = errors.New("cannot be reached")
	// ErrResources: a connection could not be made because of us: no descriptor
	// or memory is left. It says nothing about the target; nothing was sent.
	ErrResources = errors.New("was not asked, descriptors or memory have run out here")
	// ErrClosed: the connection ended without a byte of answer.
	ErrClosed = errors.New("closed the connection without an answer")
	// ErrTruncated: the connection ended in the middle of the answer.
	ErrTruncated = errors.New("ended in the middle of its answer")
	// ErrMalformed: the answer is not HTTP/1.1, or is ambiguous (RFC 9112).
	ErrMalformed = errors.New("sent a malformed answer")
	// ErrTimeout: no head, or no further byte, in the time allowed.
	ErrTimeout = errors.New("did not answer in time")
	// ErrInterrupted: the exchange was interrupted on our side, because its
	// client left.
	ErrInterrupted = errors.New("interrupted")
	// ErrSick: the health path was answered with 500 or above.
	ErrSick = errors.New("answered its health path with an error")
)

type statusError int

func (s statusError) Error() string { return fmt.Sprintf("status %d", int(s)) }

// Error says which target failed how, and whether the app may have seen
// anything of the request.
type Error struct {
	Target string // the target as configured
	Sent   bool   // a byte of the request may have reached the target
	Kind   error  // one of the Err values of this package
	Cause  error  // what the system or the parser said; may be nil
}

func (e *Error) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("target %s %v", e.Target, e.Kind)
	}
	return fmt.Sprintf("target %s %v: %v", e.Target, e.Kind, e.Cause)
}

// Unwrap gives the kind and the cause to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}
