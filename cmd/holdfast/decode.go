package main

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// decoder fills Go structs from a YAML tree, strictly: a key that no field has, a key given twice, a value of another
// type, a value left empty are faults, each with its place. Fields say what they take by tag:
//
//	yaml:"name"         the key
//	required:"example"  may not be left out; the example is the hint
//	min, max:"1KiB"     bounds of a number, duration or size, inclusive
//	zero:"none"         0 may be written below min, and is what
//	oneof:"a b"         the closed list of words a text, or each of a list, is from
//	secret:"true"       no fault shows the value
//
// A struct in a list, in a map or behind a pointer begins with what its setDefaults gives.
type decoder struct{ *source }

type defaulter interface{ setDefaults() }

// oneOrList is a text or a list of texts.
type oneOrList []string

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// join names what stands under key; an odd key is quoted so that no two values share a path.
func join(path, key string) string {
	if !plainKey.MatchString(key) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func item(path string, index int) string { return fmt.Sprintf("%s[%d]", path, index) }

func (d *decoder) decode(path string, node *yaml.Node, into reflect.Value, tag reflect.StructTag) {
	d.values[path] = mark{node.Line, node.Column}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
		withDefaults(into)
	}
	if d.decodeAddress(path, node, into, tag) || d.decodeBus(path, node, into, tag) {
		return
	}
	if into.Type() == reflect.TypeFor[oneOrList]() && node.Kind == yaml.ScalarNode && !isNull(node) {
		one := reflect.New(reflect.TypeFor[string]()).Elem()
		d.scalar(path, node, one, tag)
		into.Set(reflect.ValueOf(oneOrList{one.String()}))
		return
	}
	want, need := yaml.ScalarNode, ""
	switch into.Kind() {
	case reflect.Struct, reflect.Map:
		want, need = yaml.MappingNode, "a mapping of keys"
	case reflect.Slice:
		want, need = yaml.SequenceNode, "a list"
		if into.Type() == reflect.TypeFor[oneOrList]() {
			need = "text or a list"
		}
	default:
		need = needed(into)
	}
	if node.Kind != want || isNull(node) {
		d.mismatch(path, node, need, tag)
		return
	}
	switch into.Kind() {
	case reflect.Struct:
		d.structure(path, node, into)
	case reflect.Map:
		d.named(path, node, into)
	case reflect.Slice:
		d.list(path, node, into, tag)
	default:
		d.scalar(path, node, into, tag)
	}
}

func (d *decoder) structure(path string, node *yaml.Node, into reflect.Value) {
	fields, mistyped := map[string]int{}, map[string]bool{}
	var known []string
	for i := range into.NumField() {
		if key := into.Type().Field(i).Tag.Get("yaml"); key != "" {
			fields[key] = i
			known = append(known, key)
		}
	}
	d.eachKey(path, node, func(key string, keyNode, value *yaml.Node) {
		i, ok := fields[key]
		if !ok {
			mistyped[d.unknownKey(path, keyNode, known)] = true
			return
		}
		d.decode(join(path, key), value, into.Field(i), into.Type().Field(i).Tag)
	})
	for _, key := range known {
		example, required := into.Type().Field(fields[key]).Tag.Lookup("required")
		if required && !mistyped[key] && !d.isSet(join(path, key)) {
			d.wrong(path, "has no %s (write %s: %s)", key, key, example)
		}
	}
}

func (d *decoder) named(path string, node *yaml.Node, into reflect.Value) {
	into.Set(reflect.MakeMap(into.Type()))
	d.eachKey(path, node, func(key string, _, value *yaml.Node) {
		entry := reflect.New(into.Type().Elem()).Elem()
		withDefaults(entry)
		d.decode(join(path, key), value, entry, "")
		into.SetMapIndex(reflect.ValueOf(key), entry)
		d.order[path] = append(d.order[path], key)
	})
}

func (d *decoder) list(path string, node *yaml.Node, into reflect.Value, tag reflect.StructTag) {
	into.Set(reflect.MakeSlice(into.Type(), len(node.Content), len(node.Content)))
	for i, value := range node.Content {
		withDefaults(into.Index(i))
		d.decode(item(path, i), value, into.Index(i), tag)
	}
}

// eachKey calls do for every key of a mapping that is a word and stands there once.
func (d *decoder) eachKey(path string, node *yaml.Node, do func(key string, keyNode, value *yaml.Node)) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		at := mark{key.Line, key.Column}
		if key.Kind != yaml.ScalarNode || isNull(key) {
			d.wrongAt(at, "a key%s is %s where a word is needed (write NAME: value)", under(path), nodeWords(key))
			continue
		}
		full := join(path, key.Value)
		if first, twice := d.keys[full]; twice {
			d.wrongAt(at, "key %s is given twice%s, first on line %d (take one out)", quote(key.Value), under(path), first.line)
			continue
		}
		d.keys[full] = at
		do(key.Value, key, value)
	}
}

// unknownKey gives back the key that was probably meant: it is not missing too.
func (d *decoder) unknownKey(path string, key *yaml.Node, known []string) string {
	at := mark{key.Line, key.Column}
	near, hint := nearest(key.Value, known), meant(key.Value, known)
	if near == "" {
		if home := homeOf(key.Value, reflect.TypeFor[fileConfig](), ""); home != "" {
			hint = "it belongs " + home
		}
	}
	d.wrongAt(at, "unknown key %s%s (%s)", quote(key.Value), under(path), hint)
	return near
}

// homeOf says where key is known, the outermost place first: the answer to a wrong indent.
func homeOf(key string, t reflect.Type, path string) string {
	switch t.Kind() {
	case reflect.Pointer:
		return homeOf(key, t.Elem(), path)
	case reflect.Map:
		return homeOf(key, t.Elem(), path+".NAME")
	case reflect.Slice:
		return homeOf(key, t.Elem(), path+"[]")
	case reflect.Struct:
	default:
		return ""
	}
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") != key {
			continue
		}
		if path == "" {
			return "at the top level"
		}
		return "under " + path
	}
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "" {
			if home := homeOf(key, t.Field(i).Type, join(path, name)); home != "" {
				return home
			}
		}
	}
	return ""
}

// scalar expands a scalar's variables and reads it as the type it is for. Quotes around a number or a bool are
// refused, as they make it text, unless a variable made the value: there they change nothing.
func (d *decoder) scalar(path string, node *yaml.Node, into reflect.Value, tag reflect.StructTag) {
	if node.Kind != yaml.ScalarNode || isNull(node) {
		d.mismatch(path, node, needed(into), tag)
		return
	}
	value, err := expand(node.Value, d.env)
	if err != nil {
		if isSecret(tag) && !errors.Is(err, errUnset) {
			err = errNoName // what stands in the braces may be part of the secret
		}
		d.wrong(path, "%s %v", shownAs(tag, node.Value), err)
		return
	}
	shown := shownAs(tag, value)
	if value != node.Value && !isSecret(tag) {
		shown += " (from " + shownAs(tag, node.Value) + ")"
	}
	if err := assign(into, value); err != nil {
		d.wrong(path, "%s %v", shown, err)
		return
	}
	quoted := node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	if (into.Kind() == reflect.Bool || into.Type() == reflect.TypeFor[int]() || into.Type() == reflect.TypeFor[int64]()) && quoted && value == node.Value {
		d.wrong(path, "%s is text where %s is needed (write %s without quotes)", shown, needed(into), value)
		return
	}
	if problem := outside(into, tag); problem != "" {
		d.wrong(path, "%s %s", shown, problem)
	}
}

func (d *decoder) mismatch(path string, node *yaml.Node, need string, tag reflect.StructTag) {
	if isNull(node) {
		d.wrong(path, "has no value where %s is needed (give it one, or take the key out)", need)
		return
	}
	shown, hint := "", howToWrite[need]
	if node.Kind == yaml.ScalarNode {
		shown = shownAs(tag, node.Value) + " "
		if need == "a list" {
			hint = "write [" + shownAs(tag, node.Value) + "]"
		}
	}
	d.wrong(path, "%sis %s where %s is needed (%s)", shown, nodeWords(node), need, hint)
}
