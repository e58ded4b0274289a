package holds

// End is why a hold ended: a closed list, the same words in log, metric and
// close reason.
type End uint8

// The ends of a hold.
const (
	EndClient    End = iota // the client left
	EndSlow                 // it was too far behind
	EndStalled              // it took no byte for too long
	EndProtocol             // it broke the WebSocket protocol
	EndTooBig               // it sent a message over the limit
	EndPublished            // it was ended by the publish API
	EndExpired              // it has reached max_age
	EndDraining             // the process stops
	EndOverload             // its messages could not be delivered
	EndBusLost              // events may have been missed
	EndError                // our own failure
	ends
)

func (e End) String() string {
	return [ends]string{"client", "slow", "stalled", "protocol", "too_big", "published", "expired", "draining", "overload", "bus_lost", "error"}[e]
}

// reset reports whether the connection is reset: a client that does not read
// would otherwise keep a megabyte of the kernel's memory for minutes.
func (e End) reset() bool { return e == EndSlow || e == EndStalled || e == EndError }

// gone reports whether there is nobody to say a last word to.
func (e End) gone() bool { return e == EndClient || e.reset() }
