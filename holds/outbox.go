package holds

import "time"

// outbox is what a hold's client has not taken yet: references to bytes that
// do not change. It exists only while something waits.
type outbox struct {
	hold   *hold
	at     int // its place in the loop's list
	pieces [][]byte
	bytes  int // of all pieces
	behind int // of the pieces after the first

	since   time.Time // when the client last took something
	unacked int       // what the kernel had for it then; -1: not known
}

// push adds a piece at the end.
func (o *outbox) push(b []byte) {
	if len(o.pieces) > 0 {
		o.behind += len(b)
	}
	o.pieces = append(o.pieces, b)
	o.bytes += len(b)
}

// took removes n bytes from the front.
func (o *outbox) took(n int) {
	o.bytes -= n
	for n > 0 {
		first := o.pieces[0]
		if n < len(first) {
			o.pieces[0] = first[n:]
			return
		}
		n -= len(first)
		o.pieces[0] = nil
		o.pieces = o.pieces[1:]
		if len(o.pieces) > 0 {
			o.behind -= len(o.pieces[0])
		}
	}
}
