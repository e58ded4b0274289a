package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"holdfast/holds"
	"holdfast/lanes"
	"holdfast/upstream"
)

// The reasons of the answers that the proxy makes itself: a closed list, the
// same words in the answer, the log and the metrics.
const (
	reasonBadRequest          = "bad_request"
	reasonNoRoute             = "no_route"
	reasonMethodNotAllowed    = "method_not_allowed"
	reasonBodyTimeout         = "body_timeout"
	reasonStreamRefused       = "stream_refused"
	reasonBodyTooLarge        = "body_too_large"
	reasonURITooLong          = "uri_too_long"
	reasonExpectationFailed   = "expectation_failed"
	reasonMisdirected         = "misdirected"
	reasonHeadersTooLarge     = "headers_too_large"
	reasonInternal            = "internal"
	reasonNotImplemented      = "not_implemented"
	reasonUpstreamError       = "upstream_error"
	reasonLaneFull            = string(lanes.LaneFull)
	reasonLaneTimeout         = string(lanes.LaneTimeout)
	reasonUpstreamDown        = string(lanes.UpstreamDown)
	reasonDraining            = string(lanes.Draining)
	reasonUpstreamTimeout     = "upstream_timeout"
	reasonVersionNotSupported = "version_not_supported"
	reasonUnauthorized        = "unauthorized"
	reasonBadHold             = "bad_hold"
	reasonTooManyHolds        = "too_many_holds"
	reasonGrantInvalid        = "grant_invalid"
	reasonGrantExpired        = "grant_expired"
	reasonOriginDenied        = "origin_denied"
	reasonForbidden           = "forbidden"
	reasonUpgradeRequired     = "upgrade_required"
	reasonRangeNotSatisfiable = "range_not_satisfiable"
	reasonBusDown             = "bus_down"
)

// statusOf is the one table from reason to status.
var statusOf = map[string]int{
	reasonBadRequest:          http.StatusBadRequest,
	reasonNoRoute:             http.StatusNotFound,
	reasonMethodNotAllowed:    http.StatusMethodNotAllowed,
	reasonBodyTimeout:         http.StatusRequestTimeout,
	reasonStreamRefused:       http.StatusConflict,
	reasonBodyTooLarge:        http.StatusRequestEntityTooLarge,
	reasonURITooLong:          http.StatusRequestURITooLong,
	reasonExpectationFailed:   http.StatusExpectationFailed,
	reasonMisdirected:         http.StatusMisdirectedRequest,
	reasonHeadersTooLarge:     http.StatusRequestHeaderFieldsTooLarge,
	reasonInternal:            http.StatusInternalServerError,
	reasonNotImplemented:      http.StatusNotImplemented,
	reasonUpstreamError:       http.StatusBadGateway,
	reasonLaneFull:            http.StatusServiceUnavailable,
	reasonLaneTimeout:         http.StatusServiceUnavailable,
	reasonUpstreamDown:        http.StatusServiceUnavailable,
	reasonDraining:            http.StatusServiceUnavailable,
	reasonUpstreamTimeout:     http.StatusGatewayTimeout,
	reasonVersionNotSupported: http.StatusHTTPVersionNotSupported,
	reasonUnauthorized:        http.StatusUnauthorized,
	reasonBadHold:             http.StatusBadGateway,
	reasonTooManyHolds:        http.StatusServiceUnavailable,
	reasonGrantInvalid:        http.StatusUnauthorized,
	reasonGrantExpired:        http.StatusUnauthorized,
	reasonOriginDenied:        http.StatusForbidden,
	reasonForbidden:           http.StatusForbidden,
	reasonUpgradeRequired:     http.StatusUpgradeRequired,
	reasonRangeNotSatisfiable: http.StatusRequestedRangeNotSatisfiable,
	reasonBusDown:             http.StatusServiceUnavailable,
}

// allowAny is the Allow of a method refused everywhere.
const allowAny = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// passes are the reasons that pass by themselves. An EventSource gives up for
// good on any answer but 200, so it gets one that asks it to come back.
var passes = map[string]bool{
	reasonLaneFull: true, reasonLaneTimeout: true, reasonUpstreamDown: true, reasonDraining: true,
	reasonTooManyHolds: true, reasonUpstreamError: true, reasonUpstreamTimeout: true,
}

// fault is a request that the proxy answers itself, with a reason.
type fault struct {
	reason string
	text   string   // one sentence for the client: what is wrong, and the way out
	allow  string   // the Allow field of a 405
	fields []string // further fields of the answer: name, value, …
	lane   string   // for the log
	cause  error    // for the log; not shown to the client
}

func (f *fault) Error() string { return f.reason + ": " + f.text }

// errLeft: the client is gone; there is nobody to answer.
var errLeft = errors.New("the client left")

// errTruncated: the answer has begun and cannot be completed.
var errTruncated = errors.New("the answer was cut short")

// faultOf turns an error of lanes or upstream into the answer to make.
// errLeft comes out where the client left meanwhile.
func faultOf(err error, lane string) error {
	var refusal *lanes.Refusal
	var f *fault
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &refusal):
		return &fault{reason: string(refusal.Reason), text: refusal.Text, lane: lane}
	case errors.Is(err, context.Canceled), errors.Is(err, upstream.ErrInterrupted):
		return errLeft
	case errors.Is(err, upstream.ErrTimeout):
		return &fault{reason: reasonUpstreamTimeout, lane: lane, cause: err,
			text: "the app did not answer within response_timeout; raise lanes." + lane + ".response_timeout or make the view faster"}
	case errors.Is(err, upstream.ErrResources):
		return &fault{reason: reasonInternal, lane: lane, cause: err, text: "descriptors or memory have run out here; raise the limit of open files"}
	default:
		return &fault{reason: reasonUpstreamError, lane: lane, cause: err, text: "the app's answer could not be used"}
	}
}

// answerTo is the answer that the request gets to a fault.
func (f *fault) answerTo(r *request) *answer {
	if !passes[f.reason] || !r.isEventSource() {
		return f.answer()
	}
	return &answer{status: http.StatusOK, reason: f.reason, body: holds.AppendRetry(nil), fields: []string{
		"Content-Type", "text/event-stream",
		"Cache-Control", "no-store",
		"Holdfast-Reason", f.reason,
	}}
}

// Refuse is the answer of a route of our own that refuses: a reason of the
// closed list, and a sentence that says what is wrong and the way out.
func Refuse(reason, text string) Respond {
	a := (&fault{reason: reason, text: text}).answer()
	return Respond{Status: a.status, Fields: a.fields, Body: a.body}
}

// answer renders a fault as application/problem+json (RFC 9457).
func (f *fault) answer() *answer {
	status := statusOf[f.reason]
	a := &answer{status: status, reason: f.reason, fields: []string{
		"Content-Type", "application/problem+json",
		"Cache-Control", "no-store",
		"Holdfast-Reason", f.reason,
	}}
	if f.allow != "" {
		a.fields = append(a.fields, "Allow", f.allow)
	}
	a.fields = append(a.fields, f.fields...)
	if status == http.StatusServiceUnavailable {
		a.fields = append(a.fields, "Retry-After", "1")
	}
	a.body, _ = json.Marshal(f.problem(f.reason))
	a.body = append(a.body, '\n')
	return a
}
