package main

import (
	"reflect"
	"regexp"
	"strings"
)

// What a fault shows goes to a terminal, a log and a ticket. A value that is, or may hold, a key or a password is
// therefore never part of it: not when its type is wrong, not when a variable in it is missing, not when its line is no YAML.

// hidden stands where a secret would.
const hidden = `"…"`

// secretKeys hold secrets, or the keys that do.
const secretKeys = `keys?|grip|publish|admin|bus`

var (
	// userInfo takes everything to the last @: a password may hold a / or an @ that should have been encoded.
	userInfo = regexp.MustCompile(`://\S*@`)

	secretKey   = regexp.MustCompile(`^(?:` + secretKeys + `)$`)
	secretInUse = regexp.MustCompile(`(?:^|[\s{,"'])(?:` + secretKeys + `)["']?\s*:`)
	topLevelKey = regexp.MustCompile(`^["']?[A-Za-z_]+["']?\s*:`)
	beforeValue = regexp.MustCompile(`^[-\s{\["']*(?:(?:` + secretKeys + `|listen|iss)["']?\s*:)?`)
)

func isSecretKey(key string) bool { return secretKey.MatchString(strings.ToLower(key)) }

func isSecret(tag reflect.StructTag) bool { return tag.Get("secret") != "" }

// shownAs quotes a value as far as it may be shown.
func shownAs(tag reflect.StructTag, value string) string {
	if isSecret(tag) {
		return hidden
	}
	return quote(value)
}

// withoutUser hides the user name and password of a URL.
func withoutUser(text string) string { return userInfo.ReplaceAllString(text, "://…@") }

// withoutSecret is the last of lines as far as it may be shown. Without a tree there is only the text to go by: from
// the last key at the top level on, anything after a key of a secret may be one.
func withoutSecret(lines []string) (shown string, secret bool) {
	last := strings.TrimSpace(lines[len(lines)-1])
	for i := len(lines) - 1; i >= 0; i-- {
		if secretInUse.MatchString(lines[i]) {
			return strings.TrimSpace(beforeValue.FindString(last)) + "…", true
		}
		if topLevelKey.MatchString(lines[i]) {
			break
		}
	}
	return last, false
}
