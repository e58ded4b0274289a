package holds

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// FuzzFrames: however a client's bytes are split, they are the same messages,
// ending at the same bytes, and the same fault; what is kept is at most twice
// what came, and in a read nothing is written to behind what was used.
func FuzzFrames(f *testing.F) {
	for _, c := range conformanceCases() {
		if len(c.send) < 2000 {
			f.Add([]byte(c.send), uint64(len(c.send)), uint16(64))
		}
	}
	f.Fuzz(func(t *testing.T, sent []byte, seed uint64, limit uint16) {
		random := rand.New(rand.NewPCG(seed, 0))
		whole := meaning(t, sent, int(limit), func() int { return len(sent) })
		for name, size := range map[string]func() int{
			"byte by byte": func() int { return 1 },
			"in bits":      func() int { return 1 + random.IntN(9) },
			"in pieces":    func() int { return 1 + random.IntN(len(sent)) },
		} {
			if got := meaning(t, sent, int(limit), size); !slices.Equal(got, whole) {
				t.Fatalf("% x\n%s: %q\nwhole: %q", sent, name, got, whole)
			}
		}
	})
}

// meaning says what sent means, read in such sizes.
func meaning(t *testing.T, sent []byte, limit int, size func() int) (said []string) {
	var f frames
	for at := 0; at < len(sent); {
		in := bytes.Clone(sent[at:min(at+size(), len(sent))])
		for len(in) > 0 {
			before := bytes.Clone(in)
			used, m, fault := f.next(in, limit)
			at += used
			switch {
			case used == 0 || used > len(in) || m.opcode == 0 && used < len(in):
				t.Fatalf("%d bytes of %d used, %v", used, len(in), m)
			case !bytes.Equal(in[used:], before[used:]):
				t.Fatal("what is behind a message was written to")
			case fault != nil:
				said = append(said, fmt.Sprintf("fault %d: %v", fault.code, fault))
			case m.opcode != 0:
				said = append(said, fmt.Sprintf("%X %d %q ends at %d", byte(m.opcode), m.code, m.payload, at))
			}
			if p := f.partial; p != nil && (len(p.data) > limit || cap(p.data) > max(64, 2*len(p.data)) || cap(p.control) > maxControl) {
				t.Fatalf("with a limit of %d, %d bytes are kept in %d, and %d of a control frame", limit, len(p.data), cap(p.data), cap(p.control))
			}
			in = in[used:]
		}
	}
	return said
}
