package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// configKey is one key of the YAML as reflection finds it.
type configKey struct {
	path  string // as the table writes it: lanes.NAME.slots
	value reflect.Value
	tag   reflect.StructTag
}

// configKeys walks every key that holds a value, with the default that it has where it is left out.
func configKeys(path string, value reflect.Value, tag reflect.StructTag) []configKey {
	under := func(path string, t reflect.Type) []configKey {
		entry := reflect.New(t).Elem()
		withDefaults(entry)
		return configKeys(path, entry, "")
	}
	t := value.Type()
	switch {
	case t == reflect.TypeFor[addresses]():
		// What may stand in a mapping is shown once, for the first of the three that take one.
		return append([]configKey{{path, value, tag}}, under(path+"[]", t.Elem())...)
	case t == reflect.TypeFor[address]() && !strings.HasSuffix(path, "[]"):
		return []configKey{{path, value, tag}}
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct:
		return under(path, t.Elem())
	case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.Struct:
		return under(path+".NAME", t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return under(path+"[]", t.Elem())
	case t.Kind() != reflect.Struct:
		return []configKey{{path, value, tag}}
	}
	var keys []configKey
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "" {
			keys = append(keys, configKeys(strings.TrimPrefix(path+"."+name, "."), value.Field(i), t.Field(i).Tag)...)
		}
	}
	return keys
}

// unit is what the table says of a key's type and bounds.
func (k configKey) unit() string {
	t := k.value.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if words := strings.Fields(k.tag.Get("oneof")); len(words) > 0 {
		if t.Kind() == reflect.Slice {
			return "list of `" + strings.Join(words, "`, `") + "`"
		}
		last := len(words) - 1
		return "`" + strings.Join(words[:last], "`, `") + "` or `" + words[last] + "`"
	}
	unit := map[reflect.Type]string{
		reflect.TypeFor[string]():            "text",
		reflect.TypeFor[bool]():              "`true` or `false`",
		reflect.TypeFor[int]():               "whole number",
		reflect.TypeFor[Duration]():          "duration",
		reflect.TypeFor[Size]():              "size",
		reflect.TypeFor[oneOrList]():         "text or list",
		reflect.TypeFor[addresses]():         "address or list",
		reflect.TypeFor[address]():           "address",
		reflect.TypeFor[[]string]():          "list of text",
		reflect.TypeFor[map[string]string](): "text for each name",
	}[t]
	least, most := k.tag.Get("min"), k.tag.Get("max")
	switch {
	case least != "" && most != "":
		return fmt.Sprintf("%s, %s to %s", unit, least, most)
	case least != "" && k.tag.Get("zero") != "":
		return fmt.Sprintf("%s, %s or more, or 0", unit, least)
	case least != "":
		return fmt.Sprintf("%s, %s or more", unit, least)
	case most != "":
		return fmt.Sprintf("%s, up to %s", unit, most)
	}
	return unit
}

// hasDefault says whether a cell of the table means the key's default.
func (k configKey) hasDefault(cell string) bool {
	if _, required := k.tag.Lookup("required"); required {
		return cell == "required"
	}
	switch own := k.value.Interface().(type) {
	case addresses:
		return cell == "`"+own[0].Address+"`"
	case address:
		return cell == "`"+own.Address+"`"
	}
	switch k.value.Kind() {
	case reflect.Pointer, reflect.Map:
		return cell == "left out" && k.value.IsNil()
	case reflect.Slice:
		if one, ok := k.value.Interface().(oneOrList); ok {
			return cell == "`"+strings.Join(one, ", ")+"`"
		}
		return cell == "`["+strings.Join(k.value.Interface().([]string), ", ")+"]`"
	}
	text := strings.Trim(strings.Trim(cell, "`"), `"`)
	written := reflect.New(k.value.Type()).Elem()
	return strings.HasPrefix(cell, "`") && assign(written, text) == nil && reflect.DeepEqual(written.Interface(), k.value.Interface())
}

var tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\| ([^|]+) \\| ([^|]+) \\|$")

func TestConfigurationPage_HasARowForEachKeyAndNoOther(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := tableRow.FindAllStringSubmatch(string(page), -1)
	keys := configKeys("", reflect.ValueOf(defaults()).Elem(), "")
	for i, key := range keys {
		if i >= len(rows) {
			t.Fatalf("the table ends before `%s`", key.path)
		}
		row := rows[i]
		if row[1] != key.path {
			t.Fatalf("row %d is `%s`, want `%s`: the table has the keys in the order of the structs", i+1, row[1], key.path)
		}
		if !key.hasDefault(row[2]) {
			t.Errorf("`%s` has the default %s in the table, and %v (%s) in the code", key.path, row[2], key.value, key.tag)
		}
		if row[3] != key.unit() {
			t.Errorf("`%s` has the unit %q in the table, and %q in the code", key.path, row[3], key.unit())
		}
	}
	if len(rows) != len(keys) {
		t.Errorf("the table has %d rows, the code %d keys", len(rows), len(keys))
	}
}

var (
	indexes  = regexp.MustCompile(`\[[0-9]+\]`)
	nameStep = regexp.MustCompile(`^(upstreams|lanes)\.[^.]+`)
	// asComment is a line of the example that shows what needs something beside the file.
	asComment = regexp.MustCompile(`(?m)^( *)# (- \{(?:match|address): |[a-z]+: \{)`)
)

const exampleFile = "../../config.yaml.example"

func noVariables(string) (string, bool) { return "", false }

func TestConfigExample_LoadsAsItStandsAndCanBeServed(t *testing.T) {
	c, err := loadConfig(exampleFile, noVariables)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "warnings", c.warnings, nil)
}

// What is shown as a comment is held to the same: taken as it would be without the comment's sign.
func TestConfigExample_ShowsEachKey(t *testing.T) {
	data, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	c, err := loadText(t, asComment.ReplaceAllString(string(data), "$1$2"))
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for path := range c.source.values {
		shown[nameStep.ReplaceAllString(indexes.ReplaceAllString(path, "[]"), "$1.NAME")] = true
	}
	for _, key := range configKeys("", reflect.ValueOf(defaults()).Elem(), "") {
		if !shown[key.path] {
			t.Errorf("config.yaml.example does not show `%s`", key.path)
		}
	}
}

// The example promises that what it shows is the default, so its first upstream and lane are held to that.
func TestConfigExample_ShowsTheDefaults(t *testing.T) {
	c, err := loadConfig(exampleFile, noVariables)
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	// No list and an empty one are the same.
	wantEqual(t, "number of trusted proxies and keys", len(c.TrustedProxies)+len(c.Publish.Keys)+len(c.Admin.Keys), 0)
	c.Publish.Keys, c.Admin.Keys = nil, nil
	wantEqual(t, "instance", c.Instance, want.Instance)
	wantEqual(t, "listen", c.Listen, want.Listen)
	wantEqual(t, "limits", c.Limits, want.Limits)
	wantEqual(t, "holds", c.Holds, want.Holds)
	wantEqual(t, "grip", c.Grip, want.Grip)
	wantEqual(t, "publish", c.Publish, want.Publish)
	wantEqual(t, "admin", c.Admin, want.Admin)
	wantEqual(t, "bus", c.Bus, want.Bus)
	wantEqual(t, "drain", c.Drain, want.Drain)
	wantEqual(t, "health", c.Health, want.Health)
	wantEqual(t, "log", c.Log, want.Log)

	app, lane := c.Upstreams["app"], c.Lanes["web"]
	var upstream upstreamConfig
	upstream.setDefaults()
	upstream.Targets, upstream.Concurrency = app.Targets, app.Concurrency
	wantEqual(t, "upstreams.app", app, upstream)
	var web laneConfig
	web.setDefaults()
	web.Upstream, web.Slots = lane.Upstream, lane.Slots
	wantEqual(t, "lanes.web", lane, web)
}
