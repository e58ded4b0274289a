package holds

import "time"

// outbox is what a hold's client has not taken yet: references to bytes that
// do not change. It exists only while something waits.
type outbox struct {
	hold   *hold
	at     int // its place in the loop's list
	pieces [][]byte
	keeps  []kept // what each piece keeps in memory
	bytes  int    // of all pieces
	behind int    // of the pieces after the first

	since   time.Time // when the client last took something
	unacked int       // what the kernel had for it then; -1: not known
}

// push adds a piece at the end.
func (o *outbox) push(b []byte, k kept) {
	if len(o.pieces) > 0 {
		o.behind += len(b)
	}
	o.pieces = append(o.pieces, b)
	o.keeps = append(o.keeps, k)
	o.bytes += len(b)
}

// took removes n bytes from the front; pieces is how many are gone with them.
func (o *outbox) took(n int) (pieces int) {
	o.bytes -= n
	for n > 0 {
		first := o.pieces[pieces]
		if n < len(first) {
			o.pieces[pieces] = first[n:]
			break
		}
		n -= len(first)
		o.pieces[pieces] = nil
		if pieces++; pieces < len(o.pieces) {
			o.behind -= len(o.pieces[pieces])
		}
	}
	o.pieces = o.pieces[pieces:]
	return pieces
}
