package holds

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParseChannels_ReadsAListAndCountsWhatIsNoChannel(t *testing.T) {
	long := strings.Repeat("x", 255)
	escaped := strings.Repeat("%c3%A9", 127) + "x" // 255 bytes decoded, 763 as they stand
	for _, c := range []struct {
		value string
		want  []string
		bad   int
	}{
		{value: ""},
		{value: " \t "},
		{value: ",, ,\t,"},
		{value: "news", want: []string{"news"}},
		{value: "a, b", want: []string{"a", "b"}},
		{value: "\ta ,b\t, c ", want: []string{"a", "b", "c"}},
		{value: ",a,,b,", want: []string{"a", "b"}},
		{value: "a,b,a, b", want: []string{"a", "b"}},
		{value: "a,%61,A", want: []string{"a", "A"}},
		{value: "user-42:x/y?z;w=1\"'[]{}~!", want: []string{"user-42:x/y?z;w=1\"'[]{}~!"}},
		{value: "a%2Cb,a%2cb", want: []string{"a,b"}},
		{value: "100%25", want: []string{"100%"}},
		{value: "%2541", want: []string{"%41"}}, // decoded once
		{value: "a%20b", want: []string{"a b"}},
		{value: "%20", want: []string{" "}},
		{value: "caf%C3%A9", want: []string{"café"}},
		{value: "%FF", want: []string{"\xff"}},
		{value: "%80%9f", want: []string{"\x80\x9f"}},
		{value: long, want: []string{long}},
		{value: escaped, want: []string{strings.Repeat("é", 127) + "x"}},

		{value: "%", bad: 1},
		{value: "a%", bad: 1},
		{value: "a%2", bad: 1},
		{value: "%2g", bad: 1},
		{value: "%g2", bad: 1},
		{value: "%%41", bad: 1},
		{value: "%u0041", bad: 1},
		{value: "%+1", bad: 1},
		{value: "a%2,b", want: []string{"b"}, bad: 1}, // an escape ends at the comma
		{value: "a b", bad: 1},
		{value: "a\tb", bad: 1},
		{value: "caf\xc3\xa9", bad: 1},
		{value: "a\x7f", bad: 1},
		{value: "a\x00", bad: 1},
		{value: "a%00", bad: 1},
		{value: "a%0d%0aX-Evil:1", bad: 1},
		{value: "a%1f", bad: 1},
		{value: "a%7F", bad: 1},
		{value: "%09", bad: 1},
		{value: long + "x", bad: 1},
		{value: escaped + "x", bad: 1},
		{value: escaped + "%78", bad: 1},
		{value: "%, a, b c, d", want: []string{"a", "d"}, bad: 2},
	} {
		value := []byte(c.value)
		names, bad := ParseChannels(value, nil)
		if !slices.Equal(names, c.want) || bad != c.bad {
			t.Errorf("ParseChannels(%.60q) is %.200q, %d bad; want %.200q, %d", c.value, names, bad, c.want, c.bad)
		}
		if string(value) != c.value {
			t.Errorf("ParseChannels(%q) wrote into it", c.value)
		}
	}
}

func TestParseChannels_AddsToWhatEarlierFieldsNamed(t *testing.T) {
	names, bad := ParseChannels([]byte("a, b"), nil)
	names, more := ParseChannels([]byte("b, c, %"), names)
	if want := []string{"a", "b", "c"}; !slices.Equal(names, want) || bad+more != 1 {
		t.Errorf("two fields name %q, %d bad; want %q and 1", names, bad+more, want)
	}
}

func TestParseChannels_KeepsItsNamesWhenTheBufferIsUsedAgain(t *testing.T) {
	value := []byte("news,sport")
	names, _ := ParseChannels(value, nil)
	copy(value, "xxxxxxxxxx")
	if want := []string{"news", "sport"}; !slices.Equal(names, want) {
		t.Errorf("they are %q now", names)
	}
}

func TestParseChannels_ShowsThatThereAreMoreThanAHoldMayJoin(t *testing.T) {
	list := func(n int) []byte {
		var b bytes.Buffer
		for i := range n {
			fmt.Fprintf(&b, "c%d, c0,", i)
		}
		return b.Bytes()
	}
	for _, c := range []struct{ n, want int }{
		{1, 1}, {MaxChannels, MaxChannels},
		{MaxChannels + 1, MaxChannels + 2}, // and a duplicate, which is no longer looked for
		{1000, MaxChannels + 2 + 2*(1000-MaxChannels-1)},
	} {
		n := c.n
		names, bad := ParseChannels(list(n), nil)
		if len(names) != c.want || bad != 0 {
			t.Errorf("%d different channels, one of them often: %d names, want %d; %d bad", n, len(names), c.want, bad)
		}
		for i := range n {
			if name := fmt.Sprintf("c%d", i); !slices.Contains(names, name) {
				t.Errorf("of %d channels %s is not there", n, name)
			}
		}
	}
}

func TestCheckChannel_TakesOneTo255BytesWithoutControlBytes(t *testing.T) {
	for c := range 256 {
		name := "a" + string([]byte{byte(c)}) + "b"
		if err, control := CheckChannel(name), c < 0x20 || c == 0x7f; (err != nil) != control {
			t.Errorf("CheckChannel(%q): %v", name, err)
		}
	}
	for _, c := range []struct{ name, err string }{
		{"x", ""},
		{" ", ""},
		{"a,b%", ""},
		{"日本", ""},
		{strings.Repeat("x", 255), ""},
		{"", "empty"},
		{strings.Repeat("x", 256), "256 bytes"},
		{strings.Repeat("é", 128), "256 bytes"},
		{"\n", "control"},
	} {
		err := CheckChannel(c.name)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("CheckChannel(%.20q): %v, want %q", c.name, err, c.err)
		}
	}
}

func TestEncodeChannels_EscapesWhatAListCannotHold(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  string
	}{
		{nil, ""},
		{[]string{"a"}, "a"},
		{[]string{"a", "b"}, "a,b"},
		{[]string{"a,b", "100%", "x y", "\u00e9", "~!\"*"}, "a%2Cb,100%25,x%20y,%C3%A9,~!\"*"},
		{[]string{"a\r\nX-Evil: 1"}, "a%0D%0AX-Evil:%201"},
	} {
		if got := EncodeChannels(c.names); got != c.want {
			t.Errorf("EncodeChannels(%q) is %q, want %q", c.names, got, c.want)
		}
	}
	for c := range 256 {
		name := string([]byte{byte(c)})
		names, bad := ParseChannels([]byte(EncodeChannels([]string{"<", name, ">"})), nil)
		if CheckChannel(name) != nil {
			if bad != 1 {
				t.Errorf("%q is no channel and was read back: %q", name, names)
			}
		} else if name != "<" && name != ">" && (!slices.Equal(names, []string{"<", name, ">"}) || bad != 0) {
			t.Errorf("%q comes back as %q, %d bad", name, names, bad)
		}
	}
}

// FuzzParseChannels: whatever is read are channels, at most as many as there
// are elements, and what is read comes back the same when written out.
func FuzzParseChannels(f *testing.F) {
	for _, value := range []string{"", "a, b", ",a,,a", "a%2Cb", "%", "%zz", "a%2", "%00", "caf\xc3\xa9", "caf%c3%a9", " \t,\t", "a b", "100%25",
		strings.Repeat("x", 256), strings.Repeat("%41", 255), strings.Repeat("a,b,c,d,", 40)} {
		f.Add([]byte(value), "a")
		f.Add([]byte(value), "")
	}
	f.Fuzz(func(t *testing.T, value []byte, before string) {
		var into []string
		if before != "" {
			into = append(into, before)
		}
		names, bad := ParseChannels(value, into)
		if len(names)-len(into)+bad > bytes.Count(value, []byte(","))+1 {
			t.Fatalf("%q has %q and %d bad", value, names, bad)
		}
		if !slices.Equal(names[:len(into)], into) {
			t.Fatalf("%q turned into %q", into, names)
		}
		added := names[len(into):]
		for i, name := range added {
			if err := CheckChannel(name); err != nil {
				t.Fatalf("%q has %q: %v", value, name, err)
			}
			if len(into)+i <= MaxChannels && slices.Contains(names[:len(into)+i], name) {
				t.Fatalf("%q has %q twice", value, name)
			}
		}
		again, bad := ParseChannels([]byte(EncodeChannels(added)), nil)
		if !slices.Equal(again, added) && len(names) <= MaxChannels || bad != 0 {
			t.Fatalf("%q has %q, which comes back as %q, %d bad", value, added, again, bad)
		}
	})
}
