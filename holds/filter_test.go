package holds

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

// watching is a subscriber with this meta (names and values in turn), in these
// channels, of which some have a prev-id ("name=id").
func watching(channels []string, meta ...string) *subscriber {
	sub := &subscriber{meta: map[string]string{}}
	for i := 0; i < len(meta); i += 2 {
		sub.meta[meta[i]] = meta[i+1]
	}
	names, ids := map[string]bool{}, map[string]string{}
	for _, channel := range channels {
		name, id, known := strings.Cut(channel, "=")
		names[name] = true
		if known {
			ids[name] = id
		}
	}
	sub.channels = func(name string) bool { return names[name] }
	sub.prevID = func(channel string) (string, bool) { id, ok := ids[channel]; return id, ok }
	return sub
}

func TestPasses_KeepsAnItemFromThoseThatItsMetaNames(t *testing.T) {
	bob := watching([]string{"news", "user-bob"}, "user", "bob")
	nobody := watching([]string{"news"})
	blank := watching([]string{"news"}, "user", "")
	for _, c := range []struct {
		name    string
		filters string // between spaces
		sub     *subscriber
		meta    string // of the item: name=value, between semicolons
		want    bool
	}{
		{"no filter", "", bob, "sender=bob;skip_users=bob;require_sub=other", true},
		{"its own", "skip-self", bob, "sender=bob", false},
		{"another's", "skip-self", bob, "sender=alice", true},
		{"another case", "skip-self", bob, "sender=Bob", true},
		{"nobody's", "skip-self", bob, "", true},
		{"nobody's to nobody", "skip-self", nobody, "", true},
		{"the sender empty, the user too", "skip-self", blank, "sender=", true},
		{"skipped", "skip-users", bob, "skip_users=bob", false},
		{"skipped in a list", "skip-users", bob, "skip_users=alice, \tbob ,carol", false},
		{"not in the list", "skip-users", bob, "skip_users=alice,bobby, bo,b", true},
		{"no list", "skip-users", bob, "", true},
		{"a list without names to nobody", "skip-users", nobody, "skip_users=, ,", true},
		{"a list without names to a blank user", "skip-users", blank, "skip_users=,", true},
		{"in the channel", "require-sub", bob, "require_sub=user-bob", true},
		{"not in the channel", "require-sub", nobody, "require_sub=user-bob", false},
		{"in no needed channel", "require-sub", nobody, "", true},
		{"no channel is needed", "require-sub", nobody, "require_sub=", true},
		{"the first of two", "skip-users require-sub", bob, "skip_users=bob;require_sub=news", false},
		{"the second of two", "skip-users require-sub", bob, "skip_users=alice;require_sub=none", false},
		{"both pass", "skip-users require-sub skip-self", bob, "skip_users=alice;require_sub=news;sender=alice", true},
		{"unknown filters", "skip-all http-check Skip-Self", bob, "sender=bob", true},
		{"behind unknown ones", "x build-id skip-self", bob, "sender=bob", false},
		{"others' meta", "skip-self", bob, "skip_users=bob;require_sub=none", true},
	} {
		item := map[string]string{}
		for pair := range strings.SplitSeq(c.meta, ";") {
			if name, value, ok := strings.Cut(pair, "="); ok {
				item[name] = value
			}
		}
		if got := passes(strings.Fields(c.filters), c.sub, item); got != c.want {
			t.Errorf("%s: passes is %v", c.name, got)
		}
		if c.meta == "" && !passes(strings.Fields(c.filters), c.sub, nil) {
			t.Errorf("%s: an item without meta does not pass", c.name)
		}
	}
}

func TestContentFilters_AreThoseThatRewriteInTheirOrder(t *testing.T) {
	for _, c := range []struct{ filters, want string }{
		{"", ""},
		{"skip-self require-sub unknown http-modify", ""},
		{"build-id skip-users", "build-id"},
		{"var-subst x build-id", "var-subst build-id"},
		{"build-id build-id", "build-id build-id"},
	} {
		got := contentFilters(strings.Fields(c.filters))
		if !slices.Equal(got, strings.Fields(c.want)) || c.want == "" && got != nil {
			t.Errorf("of %q they are %q, want %q", c.filters, got, c.want)
		}
	}
}

func TestSameContentFilters_AreTheSameOnesInTheSameOrder(t *testing.T) {
	for _, c := range []struct {
		filters string
		stated  []string
		want    bool
	}{
		{"", nil, true},
		{"build-id", nil, true},
		{"", []string{}, true},
		{"skip-users", []string{}, true},
		{"build-id", []string{}, false},
		{"skip-users build-id", []string{}, false},
		{"build-id skip-users", []string{"build-id"}, true},
		{"skip-users build-id require-sub", []string{"build-id"}, true},
		{"skip-users", []string{"build-id"}, false},
		{"", []string{"build-id"}, false},
		{"build-id", []string{"build-id", "build-id"}, false},
		{"build-id build-id", []string{"build-id"}, false},
		{"build-id var-subst", []string{"build-id", "var-subst"}, true},
		{"build-id var-subst", []string{"var-subst", "build-id"}, false},
		{"build-id", []string{"build-id", "skip-users"}, false},
		{"build-id", []string{"http-modify"}, false},
		{"http-modify", []string{"http-modify"}, false}, // nobody changes it as it is to be
	} {
		if got := sameContentFilters(strings.Fields(c.filters), c.stated); got != c.want {
			t.Errorf("a hold with %q and an item with %q: %v", c.filters, c.stated, got)
		}
	}
}

// reader is a hold as django-eventstream makes them, and more.
func reader() *subscriber {
	return watching([]string{"news=6", "caf%C3%A9=7", "a)b=8", "empty=", "unseen"},
		"id_format", "news:%(news)s,caf%%C3%%A9:%(caf%C3%A9)s", "user", "bob", "percent", "100%", "again", "%I%(user)s", "", "no name", "a)b", "escaped")
}

func TestRewrite_PutsIdsAndMetaIntoContent(t *testing.T) {
	const id = "news:6,caf%C3%A9:7"
	for _, c := range []struct{ filters, content, want string }{
		{"build-id", "id: %I\ndata: 5%%\n\n", "id: " + id + "\ndata: 5%\n\n"},
		{"build-id", "%I %I", id + " " + id},
		{"build-id", "%(x:%41)I", "x:%41"},
		{"build-id", `%(a\)b)I`, "a)b"},
		{"build-id", "%()I", ""},
		{"build-id", "", ""},
		{"var-subst", "hi %(user)s, 5%%", "hi bob, 5%"},
		{"var-subst", "%()s", "no name"},
		{"var-subst", `%(a\)b)s`, "escaped"},
		{"var-subst", "%(percent)s%(again)s", "100%%I%(user)s"},
		{"skip-self build-id unknown", "%I", id},
		{"unknown skip-self", "%I %d %", "%I %d %"},

		// Both: one after the other, and each leaves the other's alone.
		{"build-id var-subst", "%(user)s got %(6)I", "bob got 6"},
		{"var-subst build-id", "%(user)s got %(6)I", "bob got 6"},
		{"build-id var-subst", "%%(user)s", "bob"}, // as Pushpin wants it
		{"var-subst build-id", "%%I", id},
		{"build-id var-subst", "%%I", "%I"}, // the second one is not asked for it
		{"var-subst build-id", "%%(user)s", "%(user)s"},
		{"build-id var-subst", "5%%%%", "5%"},
		{"var-subst build-id", "%(again)s", id + "%(user)s"},
	} {
		content := []byte(c.content)
		got, err := rewrite(strings.Fields(c.filters), reader(), content)
		if string(got) != c.want || err != nil {
			t.Errorf("%s makes of %q\n     %q, %v\nwant %q", c.filters, c.content, got, err, c.want)
		}
		if string(content) != c.content {
			t.Errorf("%s wrote into %q", c.filters, c.content)
		}
	}
}

func TestRewrite_BuildsTheIdThatItsHoldAsksFor(t *testing.T) {
	for _, c := range []struct{ format, encoding, want string }{
		{"%(news)s", "", "6"},
		{"plain", "", "plain"},
		{"", "", ""},
		{"%(empty)s.", "", "."},
		{`%(a\)b)s`, "", "8"},
		{"%%%(news)s%%", "", "%6%"},
		{"n:%(news)s", "hex", "6e3a36"},
		{"", "hex", ""},
	} {
		sub := reader()
		sub.meta["id_format"] = c.format
		if c.encoding != "" {
			sub.meta["id_encoding"] = c.encoding
		}
		stated := map[string]string{"": "a", "hex": "61"}[c.encoding] // written into a body by hand it looks the same
		got, err := rewrite([]string{"build-id"}, sub, []byte("<%I>%(a)I"))
		if want := "<" + c.want + ">" + stated; string(got) != want || err != nil {
			t.Errorf("%q, %q builds %q, %v; want %q", c.format, c.encoding, got, err, want)
		}
	}
}

func TestRewrite_RefusesWhatItCannotFill(t *testing.T) {
	long := strings.Repeat("x", 4096)
	for _, c := range []struct {
		filters, content string
		meta             []string
		says             string
	}{
		{"build-id", "%I", nil, "id_format"},
		{"build-id", "%I", []string{"id_format", "%(other)s"}, `no id of the channel "other"`},
		{"build-id", "%I", []string{"id_format", "%(unseen)s"}, `no id of the channel "unseen"`},
		{"build-id", "%I", []string{"id_format", "%I"}, `%(channel)s`},
		{"build-id", "%I", []string{"id_format", "%s"}, `%(channel)s`},
		{"build-id", "%I", []string{"id_format", "5%"}, "ends within a placeholder"},
		{"build-id", "%I", []string{"id_format", "", "id_encoding", "base64"}, "id_encoding"},
		{"build-id", "%I", []string{"id_format", "", "id_encoding", ""}, "id_encoding"},
		{"build-id", "100%", nil, "ends within a placeholder"},
		{"build-id", "%d", nil, "%I, %(id)I and %% are known"},
		{"build-id", "%20", nil, "no letter"},
		{"build-id", "%(user)s", []string{"user", "bob"}, "%I, %(id)I and %% are known"},
		{"var-subst", "%(other)s", nil, `no meta "other"`},
		{"var-subst", "%s", nil, "%(name)s and %% are known"},
		{"var-subst", "%I", nil, "%(name)s and %% are known"},
		{"build-id var-subst", "%%", nil, "ends within a placeholder"}, // it has to outlast both
		{"build-id var-subst", "%(other)s", nil, "the filter var-subst"},
		{"build-id var-subst", "%d", nil, "the filter build-id"},
		{"var-subst build-id", "%(user)s", []string{"user", "100%"}, "the filter build-id"},
		{"var-subst", strings.Repeat("%(user)s", 513), []string{"user", long}, "more than 2097152 bytes"},
		{"build-id", "%I", []string{"id_format", strings.Repeat("%(news)s", MaxData/4)}, "more than 2097152 bytes"},
	} {
		got, err := rewrite(strings.Fields(c.filters), watching([]string{"news=123456789", "unseen"}, c.meta...), []byte(c.content))
		if got != nil || err == nil || !strings.Contains(err.Error(), c.says) || hasControl(err.Error()) {
			t.Errorf("%s makes of %.40q %.40q, %v; want an error that says %q", c.filters, c.content, got, err, c.says)
		}
	}
}

func TestRewrite_TakesWhatFillsItsBoundAndNotAByteMore(t *testing.T) {
	sub := watching(nil, "user", strings.Repeat("x", 4096))
	got, err := rewrite([]string{"var-subst"}, sub, bytes.Repeat([]byte("%(user)s"), 512))
	if len(got) != 2*MaxData || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_, err = rewrite([]string{"var-subst"}, sub, append(bytes.Repeat([]byte("%(user)s"), 512), 'x'))
	if !errors.Is(err, errTemplateLength) {
		t.Errorf("a byte more: %v", err)
	}
}

func TestRewrite_GivesContentItselfWhereNothingIsToDo(t *testing.T) {
	content := []byte("id: 5 100% %I")
	for _, filters := range [][]string{nil, {"skip-self"}, {"unknown", "require-sub"}} {
		if got, err := rewrite(filters, reader(), content); err != nil || &got[0] != &content[0] || len(got) != len(content) {
			t.Errorf("%q: %q, %v", filters, got, err)
		}
		if got, warned := rewriteBody(filters, reader(), content); warned || &got[0] != &content[0] || len(got) != len(content) {
			t.Errorf("%q: the body %q, warned %v", filters, got, warned)
		}
	}
	// No placeholder, so that what it would need is not asked for.
	plain := []byte("plain")
	if got, err := rewrite([]string{"build-id", "var-subst"}, watching(nil), plain); err != nil || &got[0] != &plain[0] {
		t.Errorf("%q, %v", got, err)
	}
}

func TestRewriteBody_LeavesWhatItCannotFillAndWarns(t *testing.T) {
	for _, c := range []struct {
		filters, body, want string
		warned              bool
	}{
		{"build-id", ": open\n\nid: %(5)I\ndata: 5%%\n\n", ": open\n\nid: 5\ndata: 5%\n\n", false},
		{"build-id", "id: %I", "id: %I", true},
		{"build-id", "id: caf%20%C3%A9:5\ndata: 5%%", "id: caf%20%C3%A9:5\ndata: 5%", true},
		{"build-id", "100%", "100%", true},
		{"build-id", "%(user)s", "%(user)s", true},
		{"var-subst", "hi %(user)s", "hi bob", false},
		{"var-subst", "hi %(other)s%%", "hi %(other)s%", true},
		{"build-id var-subst", "%(5)I %(user)s", "5 bob", false},
		{"build-id var-subst", "%(5)I %(other)s", "5 %(other)s", true},
		{"var-subst build-id", "%(user)s %I", "bob %I", true},
		{"skip-self", "%I", "%I", false},
		{"", "%I", "%I", false},
	} {
		sub := reader()
		sub.prevID = func(string) (string, bool) { t.Errorf("%q asks for a prev-id", c.body); return "", false }
		body := []byte(c.body)
		got, warned := rewriteBody(strings.Fields(c.filters), sub, body)
		if string(got) != c.want || warned != c.warned || string(body) != c.body {
			t.Errorf("%s makes of %q\n     %q, warned %v\nwant %q, %v", c.filters, c.body, got, warned, c.want, c.warned)
		}
	}
}

func TestRewriteBody_IsTheBodyItselfBeyondTheBound(t *testing.T) {
	sub := watching(nil, "user", strings.Repeat("x", 4096))
	body := bytes.Repeat([]byte("%(user)s"), 513)
	if got, warned := rewriteBody([]string{"build-id", "var-subst"}, sub, body); !warned || &got[0] != &body[0] || len(got) != len(body) {
		t.Errorf("%d bytes, warned %v", len(got), warned)
	}
}
