package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// assign reads value as into's type; the error goes on where the sentence's quoted value ends.
func assign(into reflect.Value, value string) error {
	if own, ok := into.Addr().Interface().(text); ok {
		return own.set(value)
	}
	switch into.Kind() {
	case reflect.String:
		into.SetString(value)
	case reflect.Bool:
		b, err := parseBool(value)
		if err != nil {
			return err
		}
		into.SetBool(b)
	case reflect.Int, reflect.Int64:
		number, err := parseWhole(value)
		if err != nil {
			return err
		}
		into.SetInt(number)
	default:
		panic("configuration field of a type that no scalar has: " + into.Type().String())
	}
	return nil
}

// outside says how a value breaks its field's min, max or oneof, or "".
func outside(value reflect.Value, tag reflect.StructTag) string {
	if words, ok := tag.Lookup("oneof"); ok {
		allowed := strings.Fields(words)
		if slices.Contains(allowed, value.String()) {
			return ""
		}
		hint := "write " + strings.Join(allowed[:len(allowed)-1], ", ") + " or " + allowed[len(allowed)-1]
		if near := nearest(value.String(), allowed); near != "" {
			hint += "; nearest: " + quote(near)
		}
		return fmt.Sprintf("is not one of its words (%s)", hint)
	}
	bound := reflect.New(value.Type()).Elem()
	zero, mayBeZero := tag.Lookup("zero")
	if mayBeZero && value.Int() == 0 {
		return ""
	}
	if least, ok := tag.Lookup("min"); ok && assign(bound, least) == nil && value.Int() < bound.Int() {
		if mayBeZero {
			return fmt.Sprintf("is below %s (write %s or more, or 0 for %s)", least, least, zero)
		}
		return fmt.Sprintf("is below %s (write %s or more)", least, least)
	}
	if most, ok := tag.Lookup("max"); ok && assign(bound, most) == nil && value.Int() > bound.Int() {
		return fmt.Sprintf("is above %s (write %s or less)", most, most)
	}
	return ""
}

func withDefaults(value reflect.Value) {
	if own, ok := value.Addr().Interface().(defaulter); ok {
		own.setDefaults()
	}
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}

func under(path string) string {
	if path == "" {
		return ""
	}
	return " in " + path
}

// nodeWords names what a node is, in a sentence.
func nodeWords(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "a mapping of keys"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(node):
		return "empty"
	}
	switch node.ShortTag() {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	}
	return "text"
}

// howToWrite is the hint for a value of another kind than needed.
var howToWrite = map[string]string{
	"a duration":        "write 30s",
	"a size":            "write 64KiB",
	"a whole number":    "write 8",
	"true or false":     "write one of them",
	"text":              "write one value",
	"text or a list":    "write one value, or several as [A, B]",
	"a list":            "write [A, B], or a line with - before each",
	addressNeed:         "write one value, or {address: \":8443\", tls: {...}}",
	busNeed:             "write memory, redis://HOST:PORT or postgres://HOST/NAME, or {url: ..., ready: always}",
	addressesNeed:       "write one value, or several as [A, B]",
	"a mapping of keys": "write its keys on the next lines, indented",
}

// needed names what a scalar's type is, in a sentence.
func needed(value reflect.Value) string {
	switch value.Addr().Interface().(type) {
	case *Duration:
		return "a duration"
	case *Size:
		return "a size"
	}
	switch value.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	}
	return "text"
}
