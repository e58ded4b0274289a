package proxy

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/holds"
	"holdfast/internal/http1"
)

// testSigner signs at the time that *now is.
func testSigner(now *time.Time) *signer {
	return &signer{iss: "holdfast", key: []byte("the key"), now: func() time.Time { return *now }}
}

// wantFields is what a request gets, made without the library that is tested.
func wantFields(claims string) string {
	url := base64.RawURLEncoding
	signed := url.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + url.EncodeToString([]byte(claims))
	mac := hmac.New(sha256.New, []byte("the key"))
	mac.Write([]byte(signed))
	return "Grip-Sig: " + signed + "." + url.EncodeToString(mac.Sum(nil)) + "\r\n" +
		"Grip-Feature: status, link:next, filter:skip-self, filter:skip-users, filter:require-sub, filter:build-id, filter:var-subst\r\n"
}

func TestSigner_AddsATokenWithIssuerAndAnHourOfLifeAndWhatIsDoneHere(t *testing.T) {
	now := time.Unix(1800000000, 0)
	s := testSigner(&now)
	if got, want := string(s.append([]byte("before\r\n"))), "before\r\n"+wantFields(`{"iss":"holdfast","exp":1800003600}`); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	s = testSigner(&now)
	s.iss = `a "name" <é>`
	if got, want := string(s.append(nil)), wantFields(`{"iss":"a \"name\" \u003cé\u003e","exp":1800003600}`); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
}

func TestSigner_MakesATokenOnceAMinuteOfTheWallClock(t *testing.T) {
	now := time.Unix(1800000000, 0) // a minute's first second
	s := testSigner(&now)
	for _, step := range []struct {
		name string
		at   int64
		exp  string
	}{
		{"the first", 1800000000, "1800003600"},
		{"the same minute", 1800000059, "1800003600"},
		{"the next minute", 1800000060, "1800003660"},
		{"a clock set forward", 1800007261, "1800010861"},
		{"a clock set back", 1800000030, "1800003630"},
		{"and standing still", 1800000030, "1800003630"},
	} {
		now = time.Unix(step.at, 0)
		if got, want := string(s.append(nil)), wantFields(`{"iss":"holdfast","exp":`+step.exp+`}`); got != want {
			t.Errorf("%s: %q\nwant %q", step.name, got, want)
		}
	}
}

func TestSigner_AllocatesNothingWhileItsMinuteLasts(t *testing.T) {
	now := time.Unix(1800000000, 0)
	s := testSigner(&now)
	head := s.append(nil)
	if n := testing.AllocsPerRun(100, func() { head = s.append(head[:0]) }); n != 0 {
		t.Errorf("%v allocations for a request", n)
	}
}

func TestSigner_IsGoodForManyRequestsAtOnce(t *testing.T) {
	var at sync.Mutex
	now := time.Unix(1800000000, 0)
	s := testSigner(nil)
	s.now = func() time.Time {
		at.Lock()
		defer at.Unlock()
		now = now.Add(7 * time.Second)
		return now
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				if got := s.append(nil); !bytes.HasPrefix(got, []byte("Grip-Sig: ey")) || !bytes.HasSuffix(got, []byte(":var-subst\r\n")) {
					t.Errorf("%q", got)
				}
			}
		})
	}
	all.Wait()
}

func TestSigner_IsThereWithGRIPAndHoldsAlone(t *testing.T) {
	kept := &holds.Holds{}
	for name, c := range map[string]struct {
		cfg  Config
		want bool
	}{
		"GRIP":               {Config{Dialects: holds.Dialects{Grip: true}, Holds: kept}, true},
		"both dialects":      {Config{Dialects: holds.Dialects{M0: true, Grip: true}, Holds: kept}, true},
		"M0 alone":           {Config{Dialects: holds.Dialects{M0: true}, Holds: kept}, false},
		"nobody keeps holds": {Config{Dialects: holds.Dialects{Grip: true}}, false},
	} {
		s := newSigner(c.cfg)
		if (s != nil) != c.want {
			t.Errorf("%s: signed %v, want %v", name, s != nil, c.want)
		}
		if got := s.append([]byte("head")); !c.want && string(got) != "head" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestSigner_WithoutAKeySignsWithOneOfThisProcessAlone(t *testing.T) {
	cfg := Config{Dialects: holds.Dialects{Grip: true}, Holds: &holds.Holds{}}
	first, again := newSigner(cfg), newSigner(cfg)
	if len(first.key) != 32 || bytes.Equal(first.key, make([]byte, 32)) {
		t.Errorf("%d bytes of key", len(first.key))
	}
	if !bytes.Equal(first.key, again.key) {
		t.Error("another configuration without a key has another key")
	}
	cfg.Grip.Key = []byte("k")
	if string(newSigner(cfg).key) != "k" {
		t.Error("the configured key is not the one that signs")
	}
}

func TestSocketEvents_AreKnownUnderWhateverAnAppTakesForTheirType(t *testing.T) {
	for _, c := range []struct {
		values []string // of Content-Type
		want   bool
	}{
		{nil, false},
		{[]string{""}, false},
		{[]string{"application/json"}, false},
		{[]string{"application/websocket-event"}, false},
		{[]string{"application/websocket-events2"}, false},
		{[]string{"text/plain; x=application/websocket-events"}, false},
		{[]string{"application/websocket-events"}, true},
		{[]string{"Application/WebSocket-EVENTS"}, true},
		{[]string{"application/websocket-events;charset=utf-8"}, true},
		{[]string{"application/websocket-events ; a=b; c"}, true},
		{[]string{"application/websocket-events;"}, true},
		{[]string{"\xa0application/websocket-events\xa0"}, true},
		{[]string{"application/websocket-events\xc2\xa0; a"}, true},
		{[]string{"text/plain, application/websocket-events"}, true},
		{[]string{",application/websocket-events"}, true},
		{[]string{"application/websocket-events, text/plain"}, true},
		{[]string{"text/plain", "application/websocket-events"}, true},
		{[]string{"application/websocket-events", "text/plain"}, true},
		{[]string{"\xff\xff", ",,;,"}, false},
	} {
		var r request
		for i, value := range c.values {
			name := []byte([...]string{"Content-Type", "CONTENT-TYPE"}[i%2])
			r.fields = append(r.fields, field{http1.Field{Name: name, Value: []byte(value)}, kindOf(name)})
		}
		r.fields = append(r.fields, field{http1.Field{Name: []byte("Accept"), Value: []byte(holds.EventsType)}, kindAccept})
		if got := r.hasSocketEvents(); got != c.want {
			t.Errorf("%q: %v, want %v", c.values, got, c.want)
		}
	}
}

func FuzzSocketEvents(f *testing.F) {
	for _, seed := range []string{"", ";", ",", holds.EventsType, " \xa0" + holds.EventsType + ";x", strings.Repeat(",", 50)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		r := request{fields: []field{{http1.Field{Name: []byte("Content-Type"), Value: value}, kindPlain}}}
		got := r.hasSocketEvents()
		lower := bytes.ToLower(value)
		if got && !bytes.Contains(lower, []byte(holds.EventsType)) {
			t.Errorf("%q is taken for events", value)
		}
		if bytes.HasPrefix(value, []byte(holds.EventsType+";")) && !got {
			t.Errorf("%q is not taken for events", value)
		}
	})
}
