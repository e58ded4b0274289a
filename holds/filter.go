package holds

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxFilters bounds the filters of one channel in one hold. More than that is
// an error of the instruction, or of the control message, that names them.
const maxFilters = 5

// GRIP's filters that are known. Others have no effect, but count.
const (
	filterSkipSelf   = "skip-self"
	filterSkipUsers  = "skip-users"
	filterRequireSub = "require-sub"
	filterBuildID    = "build-id"
	filterVarSubst   = "var-subst"
)

// subscriber is what a filter may know of a hold. Both functions are there.
type subscriber struct {
	meta     map[string]string
	channels func(name string) bool // whether the hold is in it
	// prevID is the channel's present prev-id in this hold. An item's own id
	// is it by the time that the item is rewritten: a client sends what it got
	// last back as Last-Event-ID.
	prevID func(channel string) (id string, ok bool)
}

// passes reports whether the filters let an item with this meta through to
// the hold.
//
//   - skip-self: not to the hold whose meta user is the item's sender.
//   - skip-users: not to a hold whose meta user is in the item's skip_users, a
//     list between commas; white space around its names does not count.
//   - require-sub: only to holds that are in the channel that the item's
//     require_sub names.
//
// An empty value is as good as none: it names nobody.
func passes(filters []string, sub *subscriber, item map[string]string) bool {
	user := sub.meta["user"]
	for _, filter := range filters {
		switch filter {
		case filterSkipSelf:
			if user != "" && user == item["sender"] {
				return false
			}
		case filterSkipUsers:
			if user != "" && listed(item["skip_users"], user) {
				return false
			}
		case filterRequireSub:
			if channel := item["require_sub"]; channel != "" && !sub.channels(channel) {
				return false
			}
		}
	}
	return true
}

// listed reports whether a list between commas has the name.
func listed(list, name string) bool {
	for element := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(element) == name {
			return true
		}
	}
	return false
}

// rewrites reports whether a filter is one of those that rewrite content.
func rewrites(filter string) bool { return filter == filterBuildID || filter == filterVarSubst }

// contentFilters are those of the filters that rewrite content, in their
// order; nil if there are none.
func contentFilters(filters []string) (content []string) {
	for _, filter := range filters {
		if rewrites(filter) {
			content = append(content, filter)
		}
	}
	return content
}

// sameContentFilters reports whether an item that states its content-filters
// is written for a hold with these filters: they are its contentFilters, no
// more, no fewer, in the same order. An item that is not is to be skipped, or
// its client would get placeholders as they stand, or percent signs doubled.
// nil: the item states nothing, and is for all. A stated filter that is not
// known is in no hold's contentFilters: what it would change goes to nobody.
func sameContentFilters(filters, stated []string) bool {
	if stated == nil {
		return true
	}
	at := 0
	for _, filter := range filters {
		if !rewrites(filter) {
			continue
		}
		if at == len(stated) || stated[at] != filter {
			return false
		}
		at++
	}
	return at == len(stated)
}

// rewrite gives an item's content as the filters make it for this hold. They
// work one after the other, each on what the one before it left: what renders
// in Pushpin comes out as the same bytes.
//
//   - build-id: %I is the hold's composite id: its meta id_format, in which
//     %(channel)s is that channel's prev-id in this hold. %(x)I is x. Both in
//     hexadecimal if the hold's meta id_encoding is "hex".
//   - var-subst: %(name)s is the hold's meta of that name.
//   - Both: %% is a percent sign.
//
// Where both are in filters, the placeholder of one is no error of the other,
// whichever comes first: it stays as it stands. So "%I for %(name)s" needs
// nothing doubled, and one that came out of the first filter (from %%I, or out
// of a value) is plain text to the second unless it is its own. A percent sign
// alone has to outlast both: %%%%.
//
// The error is of a placeholder that is unknown or cannot be filled, an id
// that cannot be built, or a result of more than maxExpanded bytes. What
// belongs to a placeholder that is not there is not asked for. Content without
// anything to rewrite is returned itself.
func rewrite(filters []string, sub *subscriber, content []byte) ([]byte, error) {
	ids := idBuilder{sub: sub}
	for _, filter := range filters {
		if !rewrites(filter) {
			continue
		}
		e := expansion{fill: filler(filter, filters, sub, ids.build)}
		var err error
		if content, err = e.run(content); err != nil {
			return nil, fmt.Errorf("the filter %s cannot rewrite the content: %w", filter, err)
		}
	}
	return content, nil
}

// rewriteBody is rewrite for the body of an instruction. There is no prev-id
// to build an id of yet, and a body may have been written without a thought of
// filters (an "id:" line with %20 in it): what cannot be filled, %I above all,
// stays as it stands, and warned says so. A body that would have more than
// maxExpanded bytes is returned itself, with warned.
func rewriteBody(filters []string, sub *subscriber, body []byte) (rewritten []byte, warned bool) {
	rewritten = body
	noID := func() (string, error) { return "", errNoID }
	for _, filter := range filters {
		if !rewrites(filter) {
			continue
		}
		e := expansion{fill: filler(filter, filters, sub, noID), lenient: true}
		out, err := e.run(rewritten)
		if err != nil {
			return body, true
		}
		rewritten, warned = out, warned || e.left
	}
	return rewritten, warned
}

// filler fills the placeholders of a filter that rewrites, one of filters.
func filler(filter string, filters []string, sub *subscriber, id func() (string, error)) func(placeholder) (string, error) {
	others := slices.Contains(filters, filterBuildID) && slices.Contains(filters, filterVarSubst)
	if filter == filterBuildID {
		return func(p placeholder) (string, error) {
			switch {
			case p.letter == 'I' && p.argued && sub.meta["id_encoding"] == "hex":
				return hex.EncodeToString([]byte(p.argument)), nil
			case p.letter == 'I' && p.argued:
				return p.argument, nil
			case p.letter == 'I':
				return id()
			case p.letter == 's' && others:
				return "", errOther
			}
			return "", p.unknown("%I, %(id)I")
		}
	}
	return func(p placeholder) (string, error) {
		switch {
		case p.letter == 's' && p.argued:
			if value, ok := sub.meta[p.argument]; ok {
				return value, nil
			}
			return "", fmt.Errorf("the hold has no meta %.40q; set it (Grip-Set-Meta, set-meta)", p.argument)
		case p.letter == 'I' && others:
			return "", errOther
		}
		return "", p.unknown("%(name)s")
	}
}

// The faults of build-id's meta.
var (
	errNoID       = errors.New("a body has no id to build yet; write %(id)I")
	errNoFormat   = errors.New(`the hold has no meta "id_format"; set it (Grip-Set-Meta: id_format="%(channel)s")`)
	errIDEncoding = errors.New(`the hold's meta "id_encoding" is neither "hex" nor absent`)
)

// idBuilder builds a hold's composite id when it is first asked for.
type idBuilder struct {
	sub   *subscriber
	id    string
	err   error
	built bool
}

func (b *idBuilder) build() (string, error) {
	if !b.built {
		b.id, b.err = buildID(b.sub)
		b.built = true
	}
	return b.id, b.err
}

func buildID(sub *subscriber) (string, error) {
	format, ok := sub.meta["id_format"]
	if !ok {
		return "", errNoFormat
	}
	encoding, encoded := sub.meta["id_encoding"]
	if encoded && encoding != "hex" {
		return "", errIDEncoding
	}
	e := expansion{fill: func(p placeholder) (string, error) {
		if p.letter != 's' || !p.argued {
			return "", p.unknown("%(channel)s")
		}
		if id, ok := sub.prevID(p.argument); ok {
			return id, nil
		}
		return "", fmt.Errorf("the hold has no id of the channel %.40q", p.argument)
	}}
	id, err := e.run([]byte(format))
	if err != nil {
		return "", fmt.Errorf(`the hold's meta "id_format": %w`, err)
	}
	if encoded {
		return hex.EncodeToString(id), nil
	}
	return string(id), nil
}
